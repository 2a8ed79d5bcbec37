"""The kernels whose hardware counters were measured, with their ops, and the totals of counters.

A counter belongs to one execution of a kernel: to a kernel in the trace or, as profilers of counters record
no kernels, to a mark with the kernel's name and the call that launched it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.kernels import called
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.roofline.counter_table import EMPTY, FORMS
from opscope.core.attribution.attribute import launching_calls
from opscope.core.attribution.innermost_op import open_ops
from opscope.core.perf.counters import adds_up
from opscope.core.perf.sampled_counters import IDLE
from opscope.core.question import lacking, parameters
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.columns import LookUp, at, compact, gather, pairs, spread
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.trace import range_ids

#: The columns that identify the execution to which a row of ``counters`` belongs.
_KEY: Final = ["process", "device", "correlation", "range_id"]
#: The most nested ops that a stack names; the outermost ones are left out.
DEPTH: Final = 64
#: The columns of ``measured_kernels`` without the counters.
COLUMNS: Final = (
    *("process", "rank", "device", "stream", "start", "duration", "name", "correlation"),
    *("op_id", "bottom_op", "top_op", "op_stack", "direction", "layer", "step", "range", "reason"),
)
_NOT_LINKED: Final = "the trace does not say which launch the counters are of"
_NO_OP: Final = "no op was open on the thread when the kernel was launched"
_IDLE: Final = (
    "no kernel ran on the device while this was sampled, or how long a sample lasted is not known"
)
_NO_LAUNCH: Final = "the kernel's launch is not in the trace"


@dataclass(frozen=True, slots=True)
class Executions:
    """The executions with counters, in the order of the table ``counters``.

    ``values``: per counter its execution (a number), name and value. All others have one entry per execution:
    ``key`` (process, device, correlation, range_id), ``kernel``: the row of ``kernels`` (-1: the trace has
    none), ``mark``: the row of ``ranges`` that names the kernel, ``call``: the row of ``calls`` that launched
    it, ``op``: the innermost op's row.
    """

    values: pl.DataFrame
    key: pl.DataFrame
    kernel: Ints
    mark: Ints
    call: Ints
    op: Ints

    def __len__(self) -> int:
        return len(self.key)


def executions(ops: Ops) -> Executions:
    """Return the executions for which counters were measured, each linked to its kernel, launch and op."""
    trace = ops.attribution.trace
    table = trace["counters"]
    key = table.select(_KEY).unique(maintain_order=True)
    numbered = key.with_row_index("execution").with_columns(pl.col("execution").cast(pl.Int64))
    values = table.join(numbered, on=_KEY, how="left", nulls_equal=True, maintain_order="left")
    values = values.select("execution", "name", "value")
    ids = range_ids(trace["ranges"]).to_numpy()
    mark = np.full(len(key), NONE, np.int64)
    if len(ids):
        mark[:] = LookUp(ids, np.arange(len(ids)))(key["range_id"].fill_null(NONE).to_numpy())
    kernel = _kernels(ops, key, mark)
    call, op = _launches(ops, key, kernel, mark)
    return Executions(values, key, kernel, mark, call, op)


def _kernels(ops: Ops, key: pl.DataFrame, mark: Ints) -> Ints:
    """Return the kernel of each execution. If several kernels have its correlation id, as in a CUDA graph's
    launch, take the kernel whose name begins with the execution's mark and has its text."""
    trace = ops.attribution.trace
    kernels, ranges = trace["kernels"], trace["ranges"]
    if kernels.is_empty() or key.is_empty():
        return np.full(len(key), NONE, np.int64)
    marked = key.select("process", "correlation").with_columns(
        gather(ranges["start"], mark).alias("at"),
        gather(ranges["text"], mark).cast(pl.String).alias("text"),
        pl.int_range(pl.len()).alias("execution"),
    )
    counted_kernels = kernels.select(
        "process",
        "correlation",
        pl.col("start").alias("began"),
        pl.col("name").cast(pl.String),
        pl.int_range(pl.len()).alias("row"),
    )
    both = marked.filter(pl.col("correlation").is_not_null()).join(
        counted_kernels, on=["process", "correlation"], how="inner"
    )
    alone = pl.len().over("execution") == 1
    named = (pl.col("at") == pl.col("began")) & (pl.col("text") == pl.col("name"))
    both = both.filter(alone | named.fill_null(False)).unique("execution", keep="none")
    rows = np.full(len(key), NONE, np.int64)
    rows[both["execution"].to_numpy()] = both["row"].to_numpy()
    return rows


def _launches(ops: Ops, key: pl.DataFrame, kernel: Ints, mark: Ints) -> tuple[Ints, Ints]:
    """Return the call that launched each execution, and the innermost op around it."""
    attribution = ops.attribution
    calls, ranges = attribution.trace["calls"], attribution.trace["ranges"]
    is_linked = kernel >= 0
    call = np.where(is_linked, at(attribution.kernels.call, kernel), NONE).astype(np.int64)
    op = np.where(is_linked, at(attribution.kernels.op, kernel), NONE).astype(np.int64)
    alone = np.flatnonzero(~is_linked & key["correlation"].is_not_null().to_numpy())
    if not len(alone):
        return call, op
    wanted = (
        key[alone]
        .select("process", "correlation")
        .with_columns(gather(ranges["start"], mark[alone]).fill_null(0).alias("start"))
    )
    launched = launching_calls(wanted, calls)
    call[alone] = launched
    used = np.zeros(len(calls), bool)
    used[launched[launched >= 0]] = True
    pushed = ranges.select((pl.col("kind") == "pushpop").fill_null(True)).to_series().to_numpy()
    _, call_op, _ = open_ops(ranges, attribution.is_op & pushed, calls, used, keep=False)
    op[alone] = at(call_op, launched)
    return call, op


def measured_kernels(ops: Ops, executions: Executions) -> pl.DataFrame:
    """Return one row per execution with counters: the columns COLUMNS, then one per counter, by name.
    ``start`` (ns): of the kernel, or of its launch if the trace has no kernels; ``duration`` (ns) is null
    then. A counter that was not measured for a kernel is null."""
    trace = ops.attribution.trace
    kernels, calls = trace["kernels"], trace["calls"]
    ranges = trace["ranges"]
    described = ops.describe(executions.op)
    stack, top = _stacks(ops, executions.op)
    start = gather(kernels["start"], executions.kernel)
    start = start.zip_with(start.is_not_null(), gather(calls["start"], executions.call))
    name = gather(kernels["name"], executions.kernel).cast(pl.String)
    name = name.zip_with(
        name.is_not_null(), gather(ranges["text"], executions.mark).cast(pl.String)
    )
    bare = np.flatnonzero((executions.op < 0) & (executions.call >= 0))
    layer, step, within = described.layer, described.step, described.range
    if len(bare):  # without an op, the launch gives the layer, the step and the user range
        where = called(calls, executions.call[bare].astype(np.int32))
        layer = layer.scatter(bare, ops.context.layer(*where))
        step = step.scatter(bare, ops.context.step(*where))
        within = within.scatter(bare, ops.context.user(*where))
    ranks = trace["processes"].select("process", "rank").unique("process", keep="first")
    about = executions.key.select("process", "device", "correlation").join(
        ranks, on="process", how="left", maintain_order="left"
    )
    frame = about.with_columns(
        gather(kernels["stream"], executions.kernel).alias("stream"),
        start.alias("start"),
        gather(kernels["end"] - kernels["start"], executions.kernel).alias("duration"),
        name.alias("name"),
        gather(range_ids(ranges), executions.op).alias("op_id"),
        described.call["op"].alias("bottom_op"),
        top.alias("top_op"),
        stack.alias("op_stack"),
        described.direction.alias("direction"),
        layer.alias("layer"),
        step.alias("step"),
        within.alias("range"),
        _reasons(executions, name == IDLE).alias("reason"),
    )
    wide = _wide(executions.values)
    numbered = frame.with_row_index("execution").with_columns(pl.col("execution").cast(pl.Int64))
    joined = numbered.join(wide, on="execution", how="left", maintain_order="left")
    counters = [column for column in wide.columns if column != "execution"]
    return joined.select(
        *(pl.col(column) for column in COLUMNS),
        *(pl.col(column).alias(_free(column)) for column in counters),
    )


def _free(name: str) -> str:
    """Return the column name of a counter; a suffix is added if another column has that name."""
    return f"{name} (counter)" if name in COLUMNS else name


def _wide(values: pl.DataFrame) -> pl.DataFrame:
    named = values.with_columns(pl.col("name").cast(pl.String))
    order = sorted(named["name"].unique().drop_nulls().to_list())
    if not order:
        return pl.DataFrame(schema={"execution": pl.Int64})
    wide = named.pivot("name", index="execution", values="value", aggregate_function="first")
    return wide.select("execution", *order)


def _reasons(executions: Executions, idle: pl.Series) -> pl.Series:
    """Return why an execution has no op; null if it has one."""
    unlinked = executions.key["correlation"].is_null().to_numpy()
    reason = np.select(
        [
            executions.op >= 0,
            idle.fill_null(False).to_numpy(),
            unlinked & (executions.kernel < 0),
            executions.call < 0,
        ],
        [NONE, 3, 0, 1],
        default=2,
    )
    return spread("reason", [_NOT_LINKED, _NO_LAUNCH, _NO_OP, _IDLE], reason)


def _stacks(ops: Ops, op: Ints) -> tuple[pl.Series, pl.Series]:
    """Return the names of the ops around each op, and the name of the outermost. The names are one text, the
    outermost first and the op itself last, separated by `` | ``. Each distinct stack is written once."""
    attribution = ops.attribution
    names = ops.readings["op"].cast(pl.String).fill_null("?").to_list()
    here = op.copy()
    number: NDArray[np.signedinteger] = np.zeros(len(op), np.int64)
    stacks: list[str | None] = [None]
    for _ in range(DEPTH):
        if not (here >= 0).any():
            break
        reading = at(attribution.meaning.reading, here)
        before, code, number = pairs(number, reading)
        stacks = [
            stacks[code]
            if two < 0
            else names[two]
            if stacks[code] is None
            else f"{names[two]} | {stacks[code]}"
            for code, two in zip(before.tolist(), code.tolist(), strict=True)
        ]
        here = at(attribution.parent, here).astype(np.int64)
    texts = pl.Series("op_stack", stacks, pl.String).gather(number.astype(np.uint32))
    roots = attribution.climb(op, attribution.parent < 0)
    outermost = gather(ops.readings["op"], at(attribution.meaning.reading, roots))
    return texts, outermost


def counter_totals(executions: Executions, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return one row per kernel name, innermost op and counter: the number of measured kernels, and the
    values.

    ``kernels`` is ``measured_kernels``. ``total`` is null for a counter whose values do not add up (a rate, a
    percentage, a mean); the mean of these is weighted by the kernels' durations, where the trace has them.
    """
    named = executions.values.select(
        kernels["name"].gather(executions.values["execution"]).alias("name"),
        kernels["bottom_op"].cast(pl.String).gather(executions.values["execution"]).alias("op"),
        pl.col("name").cast(pl.String).alias("counter"),
        "value",
        kernels["duration"].gather(executions.values["execution"]).alias("weight"),
    )
    weighted = (pl.col("value") * pl.col("weight")).sum() / pl.col("weight").sum()
    timed = (pl.col("weight").null_count() == 0) & (pl.col("weight").sum() > 0)
    totals = named.group_by("name", "op", "counter").agg(
        pl.len().cast(pl.Int64).alias("counted_kernels"),
        pl.col("value").sum().alias("counted"),
        pl.col("value").mean().alias("mean_count"),
        pl.col("value").min().alias("least_count"),
        pl.col("value").max().alias("most_count"),
        pl.when(timed).then(weighted).alias("by_time"),
    )
    idle = pl.col("name") == IDLE
    totals = totals.with_columns(
        pl.when(idle).then(0).otherwise("counted_kernels").alias("counted_kernels")
    )
    codes, texts = compact(totals["counter"].cast(pl.Categorical))
    summed = pl.Series([adds_up(text or "") for text in texts], dtype=pl.Boolean)
    is_sum = summed.gather(codes.astype(np.uint32))
    totals = totals.with_columns(
        pl.when(is_sum).then("counted").alias("counted"),
        pl.when(is_sum)
        .then("mean_count")
        .otherwise(pl.coalesce("by_time", "mean_count"))
        .alias("mean_count"),
    ).drop("by_time")
    first = kernels.with_row_index("first").group_by(
        "name", pl.col("bottom_op").cast(pl.String).alias("op")
    )
    order = first.agg(pl.col("first").min())
    return (
        totals.join(order, on=["name", "op"], how="left", nulls_equal=True)
        .sort("first", "counter")
        .drop("first")
    )


#: HTA's columns, each with opscope's. HTA's times are in µs.
_NAMES: Final = {
    "cat": None,
    "name": "name",
    "pid": "device",
    "ts": "start",
    "dur": "duration",
    "stream": "stream",
    "correlation": "correlation",
    "rank": "rank",
    "op_stack": "op_stack",
    "top_level_op": "top_op",
    "bottom_level_op": "bottom_op",
}
_CATEGORY: Final = "cuda_profiler_range"


def as_hta(frame: pl.DataFrame) -> pl.DataFrame:
    """Return ``measured_kernels`` with HTA's columns: ``op_stack`` a list, outermost first, times in µs.
    HTA's frame is of one rank: filter by ``rank``. Where HTA's file has -1 for no value, this frame has null;
    ``ts`` is the time of the launch, not the time that Kineto makes up."""
    table = frame.select(
        pl.lit(_CATEGORY).alias("cat"),
        *(pl.col(ours).alias(theirs) for theirs, ours in _NAMES.items() if ours is not None),
        *(pl.col(name) for name in frame.columns if name not in COLUMNS),
    )
    counters = [name for name in frame.columns if name not in COLUMNS]
    stack = pl.col("op_stack").str.split(" | ").fill_null([])
    table = table.with_columns(stack.alias("op_stack"), pl.col("ts") / 1e3, pl.col("dur") / 1e3)
    first = ["cat", "name", "pid", "ts", "dur", "stream", "correlation", "rank"]
    return table.select(*first, *counters, "op_stack", "top_level_op", "bottom_level_op")


def counter_executions(profile: Answers) -> Executions:
    """The executions of kernels whose hardware counters were measured."""
    return executions(profile.of(op_index))


def answer(profile: Answers, *, names: Literal["opscope", "hta"] = "opscope") -> pl.DataFrame:
    """Every kernel whose hardware counters were measured, with the ops around its launch.

    A column for each counter, named after the counter, follows the columns below; it is null for kernels
    for which it was not measured. With ``names="hta"`` the columns are those of Holistic Trace Analysis:
    ``op_stack`` is a list, times are in µs. Raises ValueError for other ``names``.
    """
    measured = profile._frame("counters", lambda: _measure(profile))
    return measured if names == "opscope" else as_hta(measured)


def _measure(profile: Answers) -> pl.DataFrame:
    return measured_kernels(profile.of(op_index), profile.of(counter_executions))


def answer_totals(profile: Answers) -> pl.DataFrame:
    """The values of each counter by kernel name and innermost op."""
    return counter_totals(profile.of(counter_executions), profile.counters())


QUESTION = (
    Question(
        answer=answer,
        frames=(
            Frame(
                "counters()",
                (
                    "one row per kernel execution whose counters were measured; a column per counter "
                    "follows"
                ),
                columns(
                    "process rank device stream start duration name correlation op_id "
                    "bottom_op top_op op_stack direction layer step range reason",
                    """
                    start: ns: start of the kernel; of its launch, if the trace has no kernels
                    duration: ns: duration of the kernel; null if the trace has no kernels
                    bottom_op: text: the innermost op around the launch
                    top_op: text: the outermost op around the launch
                    op_stack: text: names of the ops around the launch, from the outermost to the
                        innermost, parted by |
                    reason: text: why the kernel has no op; null if it has one
                    """,
                ),
            ),
        ),
        parameters={"names": parameters.choice("whose names the columns have", ("opscope", "hta"))},
        kept=False,
    ),
    Question(
        answer=answer_totals,
        frames=(
            Frame(
                "counter_totals()",
                "one row per kernel name, innermost op and counter, in the order of the first launch",
                columns(
                    "name op counter counted_kernels counted mean_count least_count most_count",
                    """
                    op: text: the innermost op around the launch
                    counter: text: the counter's name, as its tool writes it
                    counted_kernels: count: kernel executions of which the counter was measured; 0 for
                        samples that are no kernel's
                    counted: value: sum of the values; null if the counter's values do not add up (a rate,
                        a mean, a share)
                    mean_count: value: mean of the values; of a rate or share, by the kernels' durations,
                        where the trace has them
                    least_count: value: smallest value
                    most_count: value: largest value
                    """,
                ),
            ),
        ),
        merged=lacking.RUNS,
        reports=(
            Report(
                name="counters",
                title="Hardware counters",
                empty=EMPTY,
                forms=FORMS,
                gpu_only=True,
                aliases=("counter_totals",),
            ),
        ),
    ),
)
