"""MindSpore's step trace in every framework: iteration interval, forward and backward, tail.

In MindInsight, a step begins where the one before ended, and is cut at two points: where its first forward op
begins, and where its last backward op ends. The time before is the iteration interval (the wait for data),
the time after is the tail (reduction of gradients, the optimizer).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.steps.step_phases import PHASES, Phases, phases_of_steps
from opscope.core.analysis.steps.step_times import processes_of, step_bounds
from opscope.core.question import lacking
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.interpret import ROLE
from opscope.core.tables.intervals import NONE, Ints

#: The points that a source records, in the attributes of a step's range.
FORWARD_START: Final = "forward_start"
BACKWARD_END: Final = "backward_end"
STATED: Final = "the source"
#: Why a step has no points.
NO_FORWARD: Final = "no forward pass was seen in this step"
NO_BACKWARD: Final = "no backward pass was seen in this step"
SCHEMA: Final = {
    "process": pl.Int32,
    "rank": pl.Int32,
    "step": pl.Int64,
    "start": pl.Int64,
    "forward_start": pl.Int64,
    "backward_end": pl.Int64,
    "end": pl.Int64,
    "time": pl.Int64,
    "iteration_interval": pl.Int64,
    "forward_backward": pl.Int64,
    "step_tail": pl.Int64,
    "seen_on": pl.String,
    "reason": pl.String,
}


def step_trace(ops: Ops, table: pl.DataFrame, phases: Phases) -> pl.DataFrame:
    """Return one row per step (``SCHEMA``; ns).

    ``iteration_interval`` + ``forward_backward`` + ``step_tail`` = ``time``.

    ``table`` is ``step_times.steps_of``. ``start`` is the end of the process's previous step, if that step
    has the previous number, else the step's own start. ``seen_on``: what shows the two points: the source
    itself states them, or they are those of the phases on the host, or of the kernels.
    """
    table = table.filter(pl.col("step").is_not_null())
    if table.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    before = pl.col("end").shift(1).over("process")
    follows = pl.col("step") == pl.col("step").shift(1).over("process") + 1
    # steps may overlap: then a step does not begin where the one before ended
    apart = before <= pl.col("start")
    table = table.with_columns(
        pl.when(follows & apart).then(before).otherwise("start").alias("begin")
    )
    first, last, where = _points(table, phases)
    table = table.with_columns(first, last, where)
    table = _state(ops, table)
    unlike = pl.col("backward_end") < pl.col("forward_start")
    table = table.with_columns(
        pl.when(unlike).then(None).otherwise("backward_end").alias("backward_end")
    )
    return (
        table.with_columns(
            pl.col("begin").alias("start"),
            (pl.col("end") - pl.col("begin")).alias("time"),
            (pl.col("forward_start") - pl.col("begin")).alias("iteration_interval"),
            (pl.col("backward_end") - pl.col("forward_start")).alias("forward_backward"),
            (pl.col("end") - pl.col("backward_end")).alias("step_tail"),
            pl.when(pl.col("forward_start").is_null())
            .then(pl.lit(NO_FORWARD))
            .when(pl.col("backward_end").is_null())
            .then(pl.lit(NO_BACKWARD))
            .alias("reason"),
        )
        .cast(dict(SCHEMA.items()))
        .select(*SCHEMA)
    )


def _points(table: pl.DataFrame, phases: Phases) -> list[pl.Series]:
    """Return forward_start, backward_end and seen_on of each step, from the stretches of the phases."""
    count = len(table)
    first, last = np.full(count, NONE, np.int64), np.full(count, NONE, np.int64)
    where: list[str | None] = [None] * count
    process = processes_of(table["process"])
    start, end = (table[name].to_numpy() for name in ("start", "end"))
    for number, (begins, ends, code) in phases.stretches.items():
        rows = np.flatnonzero(process == number)
        ahead, back, loads = (code == PHASES.index(n) for n in ("forward", "backward", "input"))
        low, high = start[rows], end[rows]
        last[rows] = _last_in(begins[back], ends[back], low, high)
        # ops before the step's input are not part of its forward pass
        until = _first_in(begins[back], ends[back], low, high)
        input_end = _last_in(begins[loads], ends[loads], low, np.where(until < 0, high, until))
        after = _first_in(begins[ahead], ends[ahead], np.maximum(input_end, low), high)
        anywhere = _first_in(begins[ahead], ends[ahead], low, high)
        late = (after < 0) | ((until >= 0) & (after > until))
        first[rows] = np.where(late, anywhere, after)
        for row in rows.tolist():
            where[row] = phases.seen_on[number]
    points = [
        pl.Series(name, values).set(pl.Series(values < 0), None)
        for name, values in (("forward_start", first), ("backward_end", last))
    ]
    return [*points, pl.Series("seen_on", where, pl.String)]


def _first_in(begins: Ints, ends: Ints, start: Ints, end: Ints) -> Ints:
    """Return when the first stretch of each window [start, end) begins in it, -1 if none is in it."""
    if not len(begins):
        return np.full(len(start), NONE, np.int64)
    index = np.searchsorted(ends, start, side="right")
    first_begin = np.maximum(begins[np.minimum(index, len(begins) - 1)], start)
    return np.where((index < len(begins)) & (first_begin < end), first_begin, NONE)


def _last_in(begins: Ints, ends: Ints, start: Ints, end: Ints) -> Ints:
    """Return when the last stretch of each window ends in it, -1 if none is in it."""
    if not len(begins):
        return np.full(len(start), NONE, np.int64)
    index = np.searchsorted(begins, end, side="left") - 1
    last_end = np.minimum(ends[np.maximum(index, 0)], end)
    return np.where((index >= 0) & (last_end > start), last_end, NONE)


def _state(ops: Ops, table: pl.DataFrame) -> pl.DataFrame:
    """Return the steps with opscope's points replaced by those that the source records."""
    attribution = ops.attribution
    rows = np.flatnonzero(attribution.meaning.role == ROLE["step"])
    ranges = attribution.trace["ranges"][rows].select("process", "start", "end", "attrs")
    stated = ranges.filter(pl.col("attrs").str.contains(FORWARD_START, literal=True)).select(
        "process",
        "start",
        "end",
        *(
            pl.col("attrs").str.extract(rf'"{name}":([0-9]{{1,18}})\b').cast(pl.Int64).alias(f"told_{name}")
            for name in (FORWARD_START, BACKWARD_END)
        ),
    )  # fmt: skip
    inside = pl.all_horizontal(
        pl.col(f"told_{name}").is_between("start", "end") for name in (FORWARD_START, BACKWARD_END)
    )
    stated = stated.filter(inside).unique(["process", "start", "end"], keep="first")
    if stated.is_empty():
        return table
    both = table.join(stated, on=["process", "start", "end"], how="left", maintain_order="left")
    has = pl.col(f"told_{FORWARD_START}").is_not_null()
    return both.with_columns(
        *(
            pl.when(has).then(f"told_{name}").otherwise(name).alias(name)
            for name in (FORWARD_START, BACKWARD_END)
        ),
        pl.when(has).then(pl.lit(STATED)).otherwise("seen_on").alias("seen_on"),
    )


def answer(profile: Answers) -> pl.DataFrame:
    """MindSpore's step trace: each step as iteration interval, forward and backward, and tail.

    The three add up to ``time``, which runs from the end of the step before.
    """
    phases = profile.of(phases_of_steps)
    return step_trace(profile.of(op_index), profile.of(step_bounds), phases)


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "step_trace()",
            "one row per step and process",
            columns(
                "process rank step start forward_start backward_end end time "
                "iteration_interval forward_backward step_tail seen_on reason",
                """
                start: ns: time at which the step before ended; without one, at which the step began
                forward_start: ns: time at which the forward pass began
                backward_end: ns: time at which the backward pass ended
                time: ns: end - start
                iteration_interval: ns: from start to forward_start: the wait for data
                forward_backward: ns: from forward_start to backward_end
                step_tail: ns: from backward_end to end: reduction of gradients, optimizer
                reason: text: why a part is null
                """,
            ),
        ),
    ),
    merged=lacking.PATTERNS,
    reports=(
        Report(
            name="step_trace",
            title="Step trace",
            empty="no steps in this profile: opscope.step() or a callback marks them",
            shown=(
                "process step time iteration_interval forward_backward step_tail seen_on reason"
            ),
            written=False,
        ),
    ),
)
