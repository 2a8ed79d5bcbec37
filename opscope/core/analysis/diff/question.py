"""The question of what changed between two runs; ``Profile.diff`` asks it, of two profiles."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.question import parameters
from opscope.core.question.column import Frame
from opscope.core.question.record import Question
from opscope.core.question.words import columns

#: Column words of this question only: unit and meaning.
_WORDS: Final = """
byte_rate_a: bytes/s: bytes for each second of the op in the first run; null if not known of all its calls
byte_rate_b: bytes/s: likewise in the second run
flop_rate_a: FLOP/s: FLOPs for each second of the op in the first run; null if not known of all its calls
flop_rate_b: FLOP/s: likewise in the second run
shapes_a: count: how many different inputs the op has in the first run; null if it is not in it
shapes_b: count: likewise in the second run
calls_a: value: mean number of calls per step in the first run; work without an op is a call each
calls_b: value: likewise in the second run
change: ns: b - a; of a part that one run does not know, the other's time
compute_change: ns: change of the time in kernels that are no collective's, hidden communication included
copies_change: ns: change of the time in copies and sets while none of the parts before went on
cpu_ops_change: ns: change of the time in ops on the CPU
data_loader_change: ns: change of the time in waits for the data loader
exposed_communication_change: ns: change of the time in communication while nothing was computed
inputs_b: text: the inputs in the second run, where they differ
kernels_a: text: the kernels' names in the first run, the most time first, separated by semicolons
kernels_b: text: likewise in the second run
layer_b: text: the layer in the second run, where it differs
matched: text: what is equal in both runs; null for an op of one run alone
noise: ns: how far the typical steps of the two runs may differ by chance (99.9 %, by Yuen's test on
    trimmed means); null if a run has fewer than two steps, or what is compared is in too few of them
op_b: text: the op in the second run, where its name differs
other_change: ns: change of the rest; the parts add up to change
process_a: number: the rank's process in the first run
process_b: number: the rank's process in the second run
property: text: the compared property of the runs
ratio: fraction: change / a; null where a is 0
runtime_change: ns: change of the time in calls of the GPU's runtime
same: yes/no: whether both are equal; null if one is not known
step_a: number: the step's number in the first run
step_b: number: the step's number in the second run
total_calls_a: count: calls in all of the first run; null of work without an op
total_calls_b: count: calls in all of the second run
unit: text: what is compared: step, iteration (found in what repeats) or run (the whole)
value_a: text: the first run's; null if its profile does not tell
value_b: text: the second run's
work: text: how the work differs: same, other shapes, other dtypes, other calls (more or fewer per step),
    other op; null where shapes are not recorded, and for an op of one run alone
work_a: ns: mean step of the first run less the waiting in collectives; null if that is not known
work_b: ns: likewise of the second run
work_change: ns: work_b - work_a; of a step the change of its work
"""
_WHY: Final = """
reason: text: why the noise or the verdict is null where the step's noise is known; or which work counts here
    by its name alone, as the recording has no launch of it
"""
_PART: Final = (
    "text",
    "what the process did: communication, kernels, copies, sets, runtime (calls of the GPU's runtime), data"
    " loader, CPU ops, other; a moment counts for the first of these that went on then",
)
_SHARE: Final = ("fraction", "change / the change of the step; null if that is 0")
_OP: Final = ("text", "the op; for work without one, the name of the kernel, copy, call or range")
_VERDICT: Final = (
    "text",
    "slower or faster (changed by more than the noise), within noise, same (no change), new, gone; null where"
    " the noise is not known, or chance or the window's edge may be the cause",
)
_LAYER: Final = ("text", "the layer; null if it is not known")

_PARTS: Final = (
    "compute_change exposed_communication_change copies_change runtime_change data_loader_change"
    " cpu_ops_change other_change"
)
_CAUSE: Final = (
    "text",
    "the part that changed most in the direction of the rank's work; waiting where more than half of the"
    " change is waiting in collectives for other ranks",
)
_TOTALS: Final = {
    "a": ("ns", "device time in the first run, all processes and steps added up"),
    "b": ("ns", "likewise in the second run"),
}


_FRAMES: Final = (
    Frame(
        "diff(other)",
        "one row per part of the step, the largest change first; they add up to the step",
        columns(
            "part a b change share noise verdict reason",
            _WORDS,
            """
            reason: text: why a, b or the noise is null
            """,
            part=_PART,
            share=_SHARE,
            verdict=_VERDICT,
        ),
    ),
    Frame(
        'diff(other, "cause")',
        "one row per part and op, the largest change first; they add up to the step",
        columns(
            "part op direction layer inputs a b change share noise verdict reason",
            _WORDS,
            _WHY,
            part=_PART,
            op=("text", f"{_OP[1]}; null for the part other"),
            layer=_LAYER,
            share=_SHARE,
            verdict=_VERDICT,
        ),
    ),
    Frame(
        'diff(other, "op_sum")',
        "one row per op and direction, all its shapes and layers: its device time (without a GPU, its own)",
        columns(
            "op direction a b change ratio share noise verdict calls_a calls_b shapes_a shapes_b flop_rate_a"
            " flop_rate_b byte_rate_a byte_rate_b reason",
            _WORDS,
            _WHY,
            op=_OP,
            share=("fraction", f"{_SHARE[1]}; times of ops that ran beside others count in full"),
            verdict=_VERDICT,
        ),
    ),
    Frame(
        'diff(other, "op")',
        "one row per op: its device time (without a GPU, its own); what changed beyond the noise first",
        columns(
            "op direction layer op_b layer_b inputs inputs_b matched work a b change ratio noise verdict"
            " calls_a calls_b reason",
            _WORDS,
            _WHY,
            op=_OP,
            layer=_LAYER,
            verdict=_VERDICT,
        ),
    ),
    Frame(
        'diff(other, "kernel")',
        "one row per op that other kernels work for on the same inputs, by time",
        columns(
            "op direction layer inputs kernels_a kernels_b a b change", _WORDS, op=_OP, layer=_LAYER
        ),
    ),
    Frame(
        'diff(other, "run")',
        "one row per property of the runs, those that differ first",
        columns("property value_a value_b same", _WORDS),
    ),
    Frame(
        'diff(other, "step")',
        "one row: the step",
        columns(
            "unit a b change ratio noise verdict steps_a steps_b reason",
            _WORDS,
            """
            reason: text: why a time or the noise is null
            """,
            verdict=_VERDICT,
        ),
    ),
    Frame(
        'diff(other, "rank")',
        "one row per rank, the one whose work grew most first: its mean step, and what changed in it",
        columns(
            f"rank process_a process_b a b change work_a work_b work_change noise verdict cause {_PARTS}"
            " steps_a steps_b reason",
            _WORDS,
            """
            rank: number: the rank; null if it is not known
            steps_a: count: steps of the rank in the first run that are compared
            steps_b: count: likewise in the second
            reason: text: why a change is null, or which part one run does not know
            """,
            verdict=("text", f"of the work, where it is known, else of the step: {_VERDICT[1]}"),
            cause=_CAUSE,
        ),
    ),
    Frame(
        'diff(other, "rank_step")',
        "one row per rank and step, by number; by place where the rank's runs have no number in common",
        columns(
            f"rank process_a process_b step_a step_b a b change work_change cause {_PARTS} reason",
            _WORDS,
            """
            rank: number: the rank; null if it is not known
            a: ns: the step in the first run
            b: ns: the step in the second run
            reason: text: why a change is null, or which part one run does not know
            """,
            cause=_CAUSE,
        ),
    ),
    Frame(
        'diff(other, "op_total")',
        "one row per op and direction of merged jobs, the largest change first: all that was recorded",
        columns(
            "op direction reason a b change ratio total_calls_a total_calls_b",
            _WORDS,
            """
            op: text: the op; null for device time that no op is known of
            reason: text: why op is null
            """,
            **_TOTALS,
        ),
    ),
    Frame(
        'diff(other, "kernel_total")',
        "one row per kernel of merged jobs, the largest change first: all that was recorded",
        columns(
            "name a b change ratio total_calls_a total_calls_b",
            _WORDS,
            """
            name: text: the kernel's name
            """,
            **_TOTALS,
        ),
    ),
)


def answer(profile: Answers, other: Answers, by: str = "part") -> pl.DataFrame:
    """What changed from this run to another; ``Profile.diff`` says more."""
    raise TypeError("a difference is asked of profiles: profile.diff(other)")


QUESTION = Question(
    answer=answer,
    frames=_FRAMES,
    parameters={
        "other": parameters.value("the other run"),
        "by": parameters.text("which table of the difference"),
    },
    kept=False,
    as_text=False,
)
