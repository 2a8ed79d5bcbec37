"""The frames of the difference of two runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from opscope.core.question.column import Frame
from opscope.core.question.words import columns

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
    " the noise is not known",
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


def frames() -> Iterator[Frame]:
    """Yield each frame of this subject."""
    yield Frame(
        "diff(other)",
        "one row per part of the step, the largest change first; they add up to the step",
        columns(
            "part a b change share noise verdict reason",
            part=_PART,
            share=_SHARE,
            verdict=_VERDICT,
            reason=("text", "why a or b is null"),
        ),
    )
    yield Frame(
        'diff(other, "cause")',
        "one row per part and op, the largest change first; they add up to the step",
        columns(
            "part op direction layer inputs a b change share noise verdict",
            part=_PART,
            op=("text", f"{_OP[1]}; null for the part other"),
            layer=_LAYER,
            share=_SHARE,
            verdict=_VERDICT,
        ),
    )
    yield Frame(
        'diff(other, "op")',
        "one row per op: its device time (without a GPU, its own); what changed beyond the noise first",
        columns(
            "op direction layer op_b layer_b inputs inputs_b matched work a b change ratio noise verdict"
            " calls_a calls_b",
            op=_OP,
            layer=_LAYER,
            verdict=_VERDICT,
        ),
    )
    yield Frame(
        'diff(other, "kernel")',
        "one row per op that other kernels work for on the same inputs, by time",
        columns("op direction layer inputs kernels_a kernels_b a b change", op=_OP, layer=_LAYER),
    )
    yield Frame(
        'diff(other, "run")',
        "one row per property of the runs, those that differ first",
        columns("property value_a value_b same"),
    )
    yield Frame(
        'diff(other, "step")',
        "one row: the step",
        columns(
            "unit a b change ratio noise verdict steps_a steps_b reason",
            verdict=_VERDICT,
            reason=("text", "why a time or the noise is null"),
        ),
    )
    yield Frame(
        'diff(other, "rank")',
        "one row per rank, the one whose work grew most first: its mean step, and what changed in it",
        columns(
            f"rank process_a process_b a b change work_a work_b work_change noise verdict cause {_PARTS}"
            " steps_a steps_b reason",
            rank=("number", "the rank; null if it is not known"),
            verdict=("text", f"of the work, where it is known, else of the step: {_VERDICT[1]}"),
            cause=_CAUSE,
            steps_a=("count", "steps of the rank in the first run that are compared"),
            steps_b=("count", "likewise in the second"),
            reason=("text", "why a change is null, or which part one run does not know"),
        ),
    )
    yield Frame(
        'diff(other, "rank_step")',
        "one row per rank and step, by number; by place where the rank's runs have no number in common",
        columns(
            f"rank process_a process_b step_a step_b a b change work_change cause {_PARTS} reason",
            rank=("number", "the rank; null if it is not known"),
            a=("ns", "the step in the first run"),
            b=("ns", "the step in the second run"),
            cause=_CAUSE,
            reason=("text", "why a change is null, or which part one run does not know"),
        ),
    )
    yield Frame(
        'diff(other, "op_total")',
        "one row per op and direction of merged jobs, the largest change first: all that was recorded",
        columns(
            "op direction reason a b change ratio total_calls_a total_calls_b",
            op=("text", "the op; null for device time that no op is known of"),
            reason=("text", "why op is null"),
            **_TOTALS,
        ),
    )
    yield Frame(
        'diff(other, "kernel_total")',
        "one row per kernel of merged jobs, the largest change first: all that was recorded",
        columns(
            "name a b change ratio total_calls_a total_calls_b",
            name=("text", "the kernel's name"),
            **_TOTALS,
        ),
    )
