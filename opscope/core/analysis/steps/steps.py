"""The table of steps: wall time, its parts and phases, whether the step was slow or warm-up; and its summary.

A step is slow if it is an outlier by the modified z-score (``outliers``) and at least 5 % above the median.
Median and MAD are those of the process's steps that were recorded in the same way: profiled ones are slower.
With fewer than five steps, none is judged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.exchanges import exchanges
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.steps.outliers import FEWEST, NORMAL, SCORE
from opscope.core.analysis.steps.step_phases import OUTSIDE, SHOWN, Phases, phases_of_steps
from opscope.core.analysis.steps.step_times import NAMES, OTHER, PARTS, happened, split_of
from opscope.core.analysis.steps.warm_up import warm_up
from opscope.core.question import units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column
from opscope.core.question.record import Question, Report, Rows
from opscope.core.question.tables import with_step_notes
from opscope.core.question.words import columns

#: Why it is unknown whether a step was slow.
UNMARKED: Final = "holds the next steps too: their marks are missing"
#: How far above the median a slow step must be at least.
LEAST_ABOVE: Final = 0.05
#: The reason of a step in which nothing else was recorded.
NOTHING: Final = "nothing but the step itself was recorded"
PHASE_COLUMNS: Final = tuple(
    "outside_phases" if name == OUTSIDE else f"{name}_phase" for name in SHOWN
)
COLUMNS: Final = (
    *("process", "rank", "step", "start", "end", "time"),
    *(*PARTS, OTHER, "overlap_time"),
    *PHASE_COLUMNS,
    *("slow", "warm_up", "unknown", "reason"),
)
_ALIKE: Final = ("process", "seen")
SUMMARY: Final = {
    "process": pl.Int32,
    "rank": pl.Int32,
    "part": pl.String,
    "steps": pl.Int64,
    "total": pl.Int64,
    "share": pl.Float64,
    "median": pl.Float64,
    "mad": pl.Float64,
    "p10": pl.Float64,
    "p90": pl.Float64,
    "min": pl.Int64,
    "max": pl.Int64,
    "slow_steps": pl.Int64,
    "left_out": pl.Int64,
    "warm_up_steps": pl.Int64,
}


def step_table(ops: Ops, exchanged: Callable[[], pl.DataFrame], phases: Phases) -> pl.DataFrame:
    """Return one row per step (``COLUMNS`` and ``seen``), times in ns.

    ``PARTS`` and ``other_part`` add up to ``time`` (a null counts as 0: its time is in later parts), and so
    do the phases and ``outside_phases``. ``exchanged`` returns ``timed.exchanged`` of the trace;
    ``phases``: of the steps ``step_times.steps_of(ops)``.
    """
    steps = phases.steps
    parts = split_of(steps, happened(ops, exchanged))
    in_phases = zip(PHASE_COLUMNS, phases.host().values(), strict=True)
    table = steps.with_columns(*parts, *(column.alias(name) for name, column in in_phases))
    table = _unmarked(_record(table).with_columns(slow_ones()))
    return table.with_columns(warm_up(table)).select(*COLUMNS, "seen")


def _record(table: pl.DataFrame) -> pl.DataFrame:
    """Return the table with null parts, and not ``seen``, for steps in which nothing else was recorded.

    MindSpore's device traces mark ten steps but contain the tasks of only one; it is unknown whether kernels
    ran in the others.
    """
    bare = pl.col("seen") & (pl.col(OTHER) == pl.col("time")) & (pl.col("time") > 0)
    alone = bare & (pl.col("outside_phases") == pl.col("time")).fill_null(True)
    return table.with_columns(
        *(
            pl.when(~bare.fill_null(True)).then(name).alias(name)
            for name in (*PARTS, OTHER, "overlap_time")
        ),
        *(pl.when(~alone.fill_null(True)).then(name).alias(name) for name in PHASE_COLUMNS),
        pl.when(bare).then(False).otherwise("seen").alias("seen"),
        pl.when(bare).then(pl.lit(NOTHING)).otherwise("reason").alias("reason"),
        pl.when(~bare.fill_null(True)).then("unknown").alias("unknown"),
    )


def _unmarked(table: pl.DataFrame) -> pl.DataFrame:
    """Return the table with ``slow`` null for steps that include steps with missing marks: the numbers
    after them are missing, and they last until the next step for the time of that many steps."""
    middle, step = pl.col("time").median().over(_ALIKE), pl.col("step")
    following = pl.struct("step", "start").shift(-1).over("process")
    many = following.struct.field("step") - step
    until_next = following.struct.field("start") - pl.col("end") < middle / 2
    alike = (pl.col("time") / middle - many).abs() < 0.5
    holds = ((many > 1) & alike & until_next).fill_null(False)
    return table.with_columns(
        pl.when(~holds).then("slow").alias("slow"),
        pl.when(holds).then(pl.lit(UNMARKED)).otherwise("reason").alias("reason"),
    )


def slow_ones() -> pl.Expr:
    """Return whether each step is slow; null for a row that is not a step, and if there are too few steps."""
    time, several = pl.col("time"), pl.col("step").is_not_null().sum().over(_ALIKE) >= FEWEST
    middle = time.median().over(_ALIKE)
    spread = (time - middle).abs().median().over(_ALIKE)
    above = time - middle
    far = (NORMAL * above > SCORE * spread) & (above >= LEAST_ABOVE * middle)
    return pl.when(several & pl.col("step").is_not_null()).then(far).alias("slow")


def step_summary(table: pl.DataFrame) -> pl.DataFrame:
    """Return per process and part, and per phase, the times of its steps (``SUMMARY``; ns).

    ``table`` is ``step_table``. Steps during which the device was not captured throughout are left out
    (``left_out``) unless there are no others. Warm-up counts only in the total and in ``share``, not in the
    other statistics, and is never slow. Without steps the total is that of the whole process, and there is no
    median. A part that is null in every step has no row.
    """
    counted = table.filter(pl.col("seen") | ~pl.col("seen").any().over("process"))
    left = table.group_by("process").agg(
        pl.len().cast(pl.Int64).alias("all"),
        (pl.col("seen") | ~pl.col("seen").any()).sum().cast(pl.Int64).alias("held"),
    )
    labels = {
        "time": "step",
        **NAMES,
        **dict(zip(PHASE_COLUMNS, (f"phase: {name}" for name in SHOWN), strict=True)),
    }
    is_step, warm = pl.col("step").is_not_null(), pl.col("warm_up").fill_null(False)
    parts = []
    for index, (column, label) in enumerate(labels.items()):
        time = pl.col(column)
        among = pl.col(column).filter(is_step & time.is_not_null() & ~warm)
        middle = among.median()
        parts.append(
            counted.filter(time.is_not_null())
            .group_by("process", "rank", maintain_order=True)
            .agg(
                pl.lit(index).alias("place"),
                pl.lit(label).alias("part"),
                is_step.sum().cast(pl.Int64).alias("steps"),
                time.sum().alias("total"),
                pl.col("time").sum().alias("whole"),
                middle.alias("median"),
                (among - middle).abs().median().alias("mad"),
                among.quantile(0.1, "linear").alias("p10"),
                among.quantile(0.9, "linear").alias("p90"),
                among.min().alias("min"),
                among.max().alias("max"),
                (
                    pl.when(pl.col("slow").is_not_null().any()).then((pl.col("slow") & ~warm).sum())
                    if column == "time"
                    else pl.lit(None)
                )
                .cast(pl.Int64)
                .alias("slow_steps"),
                (
                    pl.when(pl.col("warm_up").is_not_null().any()).then(warm.sum())
                    if column == "time"
                    else pl.lit(None)
                )
                .cast(pl.Int64)
                .alias("warm_up_steps"),
            )
        )
    summary = pl.concat(parts, how="vertical_relaxed").join(
        left, on="process", how="left", nulls_equal=True, maintain_order="left"
    )
    return (
        summary.with_columns(
            pl.when(pl.col("whole") > 0).then(pl.col("total") / pl.col("whole")).alias("share"),
            pl.when(pl.col("part") == "step")
            .then(pl.col("all") - pl.col("held"))
            .alias("left_out"),
        )
        .sort("process", "place", nulls_last=True)
        .cast(dict(SUMMARY.items()))
        .select(*SUMMARY)
    )


PHASE_ROWS: Final = {
    "process": pl.Int32,
    "rank": pl.Int32,
    "step": pl.Int64,
    "phase": pl.String,
    "time": pl.Int64,
    "share": pl.Float64,
    "op_time": pl.Int64,
    "device_time": pl.Int64,
    "kernels": pl.Int64,
    "seen_on": pl.String,
}


def phase_table(table: pl.DataFrame, phases: Phases, on_gpu: bool, has_ops: bool) -> pl.DataFrame:
    """Return one row per step and phase (``PHASE_ROWS``): its time and, ``on_gpu``, its device time (ns).

    ``table`` is ``step_table``. The times of a step's rows add up to the time of the step, their device times
    to the time of all work that was launched in it, and their op times to the time of all ops that began in
    it. Device times of steps outside the captured windows are null.
    """
    rows = table.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    where = pl.DataFrame(
        {"process": list(phases.seen_on), "seen_on": list(phases.seen_on.values())},
        schema={"process": pl.Int32, "seen_on": pl.String},
    )
    long = pl.concat(
        rows.select(
            "row",
            *("process", "rank", "step", "seen"),
            pl.col("time").alias("whole"),
            pl.lit(index).alias("place"),
            pl.lit(name).alias("phase"),
            pl.col(column).alias("time"),
        )
        for index, (name, column) in enumerate(zip(SHOWN, PHASE_COLUMNS, strict=True))
    )
    some = (pl.col(name).is_not_null() for name in ("device_time", "op_time", "time"))
    ran = pl.any_horizontal(*some)
    is_seen = pl.col("seen") & pl.lit(on_gpu) & ran
    # as columns, not by an expression: if all rows are of one step, Polars takes its time for a scalar and
    # multiplies by the reciprocal, which may differ in the last bit
    share = long["time"] / long["whole"]
    long = long.with_columns(pl.when(pl.col("whole") > 0).then(share.alias("share")).alias("share"))
    return (
        long.join(phases.on_device(), on=["row", "phase"], how="left")
        .join(phases.of_ops(), on=["row", "phase"], how="left")
        .join(where, on="process", how="left")
        .with_columns(
            *(
                pl.when(is_seen).then(pl.col(name).fill_null(0)).alias(name)
                for name in ("device_time", "kernels")
            ),
            pl.when(pl.lit(has_ops) & ran).then(pl.col("op_time").fill_null(0)).alias("op_time"),
        )
        .sort("row", "place")
        .cast(dict(PHASE_ROWS.items()))
        .select(*PHASE_ROWS)
    )


def table_of_steps(profile: Answers) -> pl.DataFrame:
    """The steps with their parts and phases."""
    return step_table(
        profile.of(op_index), lambda: profile.of(exchanges), profile.of(phases_of_steps)
    )


def answer(profile: Answers) -> pl.DataFrame:
    """The time of each step of each process: by activity, and by phase.

    The parts, ``communication_part`` to ``other_part``, add up to ``time`` exactly: each is the time of
    its kind in which nothing of an earlier column happened. The time of a null part is in the later
    parts: ``unknown`` says why it is null. The phases and ``outside_phases`` add up to ``time`` too; they
    are null if nothing shows phases. A trace without steps has one row per process, with a null ``step``.
    """
    return profile.of(table_of_steps).drop("seen")


def answer_summary(profile: Answers) -> pl.DataFrame:
    """The usual times of steps, by process: the whole step, each part and each phase.

    Steps that a capture's window does not hold whole are left out, unless there are no others.
    """
    return step_summary(profile.of(table_of_steps))


def answer_phases(profile: Answers) -> pl.DataFrame:
    """The phases of each step, with the device time of the work launched in each.

    The times of a step's five rows add up to the step, the op times to the ``self_time`` of all ops that
    began in it. Device times are summed durations: they may be longer than the step where kernels run at
    once.
    """
    phases = profile.of(phases_of_steps)
    ops = profile.of(op_index)
    return phase_table(profile.of(table_of_steps), phases, ops.on_device, bool(len(ops.rows)))


QUESTION = (
    Question(
        answer=answer,
        frames=(
            Frame(
                "steps()",
                "one row per step and process",
                columns(
                    "process rank step start end time communication_part kernel_part copy_part "
                    "set_part runtime_part loader_part op_part other_part overlap_time "
                    "input_phase forward_phase backward_phase optimizer_phase outside_phases "
                    "slow warm_up unknown reason",
                    """
                    step: number: the step's number; null for a row that is the whole process
                    time: ns: time from the step's start to its end
                    communication_part: ns: part of the step in collectives: their kernels, or without a
                        GPU what the backend ran; also while other kernels ran
                    kernel_part: ns: part of the rest in which other kernels ran
                    copy_part: ns: part of the rest in which something was copied
                    set_part: ns: part of the rest in which memory was set
                    runtime_part: ns: part of the rest in a call of the GPU's runtime or driver
                    loader_part: ns: part of the rest in a data loader; null if none was seen
                    op_part: ns: part of the rest in an op on the CPU
                    other_part: ns: the rest of the step: nothing that was recorded ran
                    overlap_time: ns: part of communication_part during which other kernels ran
                    unknown: text: which parts are null, and why; null if none is
                    reason: text: why parts are null, that the trace has no steps, or that the step holds
                        others whose marks are missing
                    """,
                ),
            ),
        ),
        reports=(
            Report(
                name="steps",
                title="Steps",
                empty="no steps, and nothing of the host: opscope.step() or a callback marks steps",
                shown=(
                    "process step time communication_part kernel_part copy_part runtime_part "
                    "loader_part op_part other_part forward_phase backward_phase optimizer_phase slow "
                    "warm_up"
                ),
                forms=[
                    Column("communication_part", "comm.", units.time),
                    Column("kernel_part", "kernels", units.time),
                    Column("copy_part", "copies", units.time),
                    Column("runtime_part", "runtime", units.time),
                    Column("loader_part", "loader", units.time),
                    Column("op_part", "CPU ops", units.time),
                    Column("other_part", "other", units.time),
                    Column("forward_phase", "forward", units.time),
                    Column("backward_phase", "backward", units.time),
                    Column("optimizer_phase", "optimizer", units.time),
                ],
                table=with_step_notes,
                sums=(
                    "time communication_part kernel_part copy_part set_part runtime_part "
                    "loader_part op_part other_part overlap_time forward_phase backward_phase "
                    "optimizer_phase input_phase outside_phases"
                ),
                written=False,
            ),
        ),
    ),
    Question(
        answer=answer_summary,
        frames=(
            Frame(
                "step_summary()",
                "one row per process and part of its steps: the whole step, each part, each phase",
                columns(
                    "process rank part steps total share median mad p10 p90 min max slow_steps "
                    "left_out warm_up_steps",
                    """
                    part: text: step for the whole step; a part of its time; or a phase
                    steps: count: steps that are counted; 0 if the trace has none
                    total: ns: times of all counted steps added up
                    share: fraction: total / the time of the counted steps
                    median: ns: median over the steps that are no warm-up, as are the other statistics
                    mad: ns: median absolute deviation: the median distance from the median
                    p10: ns: a tenth of the steps took no longer
                    p90: ns: nine tenths of the steps took no longer
                    min: ns: the least of a step
                    max: ns: the most of a step
                    slow_steps: count: steps that were slow and no warm-up; null if too few to judge
                    left_out: count: steps that are not counted: the device was not captured, or nothing
                        was recorded
                    warm_up_steps: count: counted steps that were warm-up: their times are in total and
                        share only; null if too few to judge
                    """,
                ),
            ),
        ),
        reports=(
            Report(
                name="step_summary",
                title="Steps, usual",
                empty="no steps, and nothing of the host: opscope.step() or a callback marks steps",
                shown=(
                    "process part steps share median mad p10 p90 max slow_steps left_out "
                    "warm_up_steps"
                ),
                table=with_step_notes,
                sums="",
            ),
        ),
    ),
    Question(
        answer=answer_phases,
        frames=(
            Frame(
                "step_phases()",
                "one row per step, process and phase",
                columns(
                    "process rank step phase time share op_time device_time kernels seen_on",
                    """
                    step: number: the step's number; null for a row that is the whole process
                    phase: text: input, forward, backward, optimizer, or outside
                    time: ns: time of the step in the phase; null if the process was never seen in it
                    share: fraction: time / the step's time
                    op_time: ns: elapsed time of the ops in it, each without those inside it: ops whose
                        direction is the phase; in backward also forward ops that it recomputes; and ops
                        of another direction, or of none, that began in it
                    device_time: ns: durations of the kernels, copies and sets launched in it added up
                    kernels: count: kernels launched in it
                    """,
                ),
            ),
        ),
        merged=(Rows(),),
        reports=(
            Report(
                name="step_phases",
                title="Phases of steps",
                empty="no steps, and nothing of the host: opscope.step() or a callback marks steps",
                forms=[
                    Column("op_time", "op time", units.time),
                    Column("device_time", "device time", units.time),
                ],
                sums="time op_time device_time kernels",
                written=False,
            ),
        ),
    ),
)
