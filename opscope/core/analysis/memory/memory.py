"""Memory: the peak of each device, its time, and the ops that had allocated the memory in use then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.memory.memory_blocks import blocks, ordered, unpaired, unused_bytes
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.question import lacking, units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column
from opscope.core.question.record import Question, Report, Rows
from opscope.core.question.words import columns
from opscope.core.tables.columns import at, gather
from opscope.core.tables.intervals import NONE, Ints, nest
from opscope.core.tables.lanes import lanes_of
from opscope.core.tables.trace import Trace

_PLACE: Final = ("process", "device")
#: Reasons why memory in use at the peak has no op.
OUTSIDE, BEFORE = "allocated outside any op", "in use before the first event"
#: Reasons why it is not known whether an op's blocks were in use at the peak.
NO_ADDRESS, NO_DEVICE = "the trace has no addresses of blocks", "the trace numbers no device"
SHARED = "in shared memory, which the allocator's total leaves out"
PEAKS: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "peak_memory": pl.Int64,
    "peak_time": pl.Int64,
    "reserved": pl.Int64,
    "in_use": pl.Int64,
    "allocated": pl.Int64,
    "released": pl.Int64,
    "allocations": pl.Int64,
    "peak_reserved": pl.Int64,
    "peak_unused": pl.Int64,
    "most_unused": pl.Int64,
    "unpaired": pl.Int64,
}
BY_OP: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "at_peak": pl.Int64,
    "share": pl.Float64,
    "op": pl.Categorical,
    "direction": pl.Categorical,
    "layer": pl.Categorical,
    "source": pl.Categorical,
    "allocations": pl.Int64,
    "bytes": pl.Int64,
    "reason": pl.String,
}
_OP: Final = ("op", "direction", "layer", "source")


def memory_peaks(trace: Trace) -> pl.DataFrame:
    """Return one row per process and device (-1: the CPU) whose memory was recorded, sizes in bytes.

    ``peak_memory``: the largest ``total``, first reached at ``peak_time`` (ns); ``reserved``: the most
    that the allocator had reserved; ``in_use``: the ``total`` at the end; ``allocated`` and ``released``:
    sums of the recorded events, whose difference is the growth of ``total``. Memory in use before the
    first event is part of a GPU's ``total``; the CPU's ``total`` in a recording counts from its start.
    ``peak_reserved``: what the allocator had reserved at ``peak_time``; ``peak_unused``: the part of it that
    was not in use; ``most_unused``: the most bytes reserved and not in use at one time. Both are null on a
    CPU, whose allocator reserves nothing. ``unpaired``: allocations and releases without their counterpart,
    null if the source does not identify blocks.
    """
    events = ordered(trace)
    gained = pl.col("bytes") > 0
    peak_row = pl.col("total").arg_max()
    unused = unused_bytes()
    return (
        events.group_by(_PLACE, maintain_order=True)
        .agg(
            pl.col("total").max().alias("peak_memory"),
            pl.col("time").get(peak_row).alias("peak_time"),
            pl.col("reserved").max(),
            pl.col("total").last().alias("in_use"),
            pl.col("bytes").filter(gained).sum().alias("allocated"),
            -pl.col("bytes").filter(~gained).sum().alias("released"),
            gained.sum().cast(pl.Int64).alias("allocations"),
            pl.col("reserved").get(peak_row).alias("peak_reserved"),
            unused.get(peak_row).alias("peak_unused"),
            unused.max().alias("most_unused"),
        )
        .join(unpaired(blocks(events)), on=_PLACE, how="left", nulls_equal=True)
        .sort(_PLACE)
        .cast(PEAKS)  # type: ignore[arg-type]
        .select(*PEAKS)
    )


def memory_by_op(ops: Ops, changes: pl.DataFrame) -> pl.DataFrame:
    """Return one row per process, device and op that allocated, the most at the peak first; sizes in bytes.

    ``at_peak``: the bytes of its blocks that were in use at the device's peak; the rows of a device add up
    to the peak exactly. ``bytes``: all bytes that it allocated, in ``allocations`` allocations. The op is
    the innermost open on the thread that allocated; if the source names no thread (a GPU's history), the
    innermost on the only thread with an open op. ``at_peak`` is null if the source gives no addresses or
    no number of the device, and of shared memory. ``reason`` says why there is no op, or no ``at_peak``.
    ``changes`` are ``memory_changes``.
    """
    if changes.is_empty():
        return pl.DataFrame(schema=BY_OP)
    events = _with_held(changes.with_row_index("row"))
    blocks = _with_ops(ops, events.filter(pl.col("bytes") > 0))
    size = pl.col("bytes")
    rows = blocks.group_by(*_PLACE, *_OP, "reason", "counted").agg(
        pl.when(pl.col("held").is_not_null().all())
        .then(size.filter(pl.col("held")).sum())
        .alias("at_peak"),
        pl.len().cast(pl.Int64).alias("allocations"),
        size.sum(),
    )
    nameless = (
        pl.when(pl.col("device").is_null()).then(pl.lit(NO_DEVICE)).otherwise(pl.lit(NO_ADDRESS))
    )
    why = pl.when("counted").then(nameless).otherwise(pl.lit(SHARED))
    reasons = ["reason", pl.when(pl.col("at_peak").is_null()).then(why)]
    rows = rows.with_columns(
        pl.concat_str(reasons, separator="; ", ignore_nulls=True).replace("", None).alias("reason")
    )
    peak = events.group_by(_PLACE).agg(pl.col("total").max().alias("peak"))
    early = _from_before(rows.filter("counted"), peak)
    held_blocks = pl.concat([rows, early], how="diagonal_relaxed").join(
        peak, on=_PLACE, how="left", nulls_equal=True
    )
    return (
        held_blocks.with_columns((pl.col("at_peak") / pl.col("peak")).alias("share"))
        .cast(dict(BY_OP.items()))
        .with_columns(pl.col(_OP).cast(pl.String).fill_null("").name.prefix("by_"))
        .sort(
            *_PLACE,
            "at_peak",
            "bytes",
            *(f"by_{name}" for name in _OP),
            descending=[False, False, True, True, *[False] * len(_OP)],
            nulls_last=True,
        )
        .select(*BY_OP)
    )


def _with_held(events: pl.DataFrame) -> pl.DataFrame:
    """Return the events with ``held``: whether the block allocated by the event was in use at the peak."""
    first = pl.col("row").get(pl.col("total").arg_max()).over(_PLACE)
    until = pl.col("row").shift(-1).over(*_PLACE, "address")
    # without a device number, one list may contain the events of several allocators
    has_place = pl.all_horizontal(pl.col("address", "device").is_not_null(), "counted")
    return events.with_columns(first.alias("peak_row")).with_columns(
        pl.when(has_place)
        .then(
            (pl.col("row") <= pl.col("peak_row"))
            & (until.fill_null(len(events)) > pl.col("peak_row"))
        )
        .alias("held")
    )


def _with_ops(ops: Ops, blocks: pl.DataFrame) -> pl.DataFrame:
    """Return the blocks with the columns of the op that allocated each, or the reason why it has none."""
    op_row = blocks["op_row"].to_numpy()
    distinct, index = np.unique(op_row[op_row >= 0], return_inverse=True)
    code = np.full(len(op_row), NONE, np.int32)
    code[op_row >= 0] = index
    about = ops.describe(distinct)
    columns = (about.call["op"], about.direction, about.layer, about.source)
    return blocks.with_columns(
        *(gather(column, code).alias(name) for name, column in zip(_OP, columns, strict=True)),
        pl.when(pl.Series(op_row < 0)).then(pl.lit(OUTSIDE)).alias("reason"),
    )


def _from_before(rows: pl.DataFrame, peak: pl.DataFrame) -> pl.DataFrame:
    """Return per device the part of the peak that has no row: memory in use before the recording began."""
    seen = rows.group_by(_PLACE).agg(
        pl.col("at_peak").sum().alias("seen"), pl.col("at_peak").is_null().any().alias("unknown")
    )
    return (
        peak.join(seen, on=_PLACE, how="left", nulls_equal=True)
        .filter(~pl.col("unknown").fill_null(False))
        .select(
            *_PLACE,
            (pl.col("peak") - pl.col("seen").fill_null(0)).alias("at_peak"),
            pl.lit(BEFORE).alias("reason"),
        )
        .filter(pl.col("at_peak") != 0)
    )


def _open_ops(ops: Ops, events: pl.DataFrame) -> Ints:
    """Return the row of the innermost op that is open at each event; -1 if none is."""
    ranges = ops.attribution.trace["ranges"]
    columns = [
        ranges[name].fill_null(NONE).gather(ops.rows).to_numpy() for name in ("process", "thread")
    ]
    times = [ranges[name].gather(ops.rows).to_numpy() for name in ("start", "end")]
    process = events["process"].fill_null(NONE).to_numpy()
    has_thread = events["thread"].is_not_null().to_numpy()
    thread = events["thread"].fill_null(NONE).to_numpy()
    time = events["time"].to_numpy()
    op_of_event = np.full(len(events), NONE, np.int64)
    several = np.zeros(len(events), bool)
    for key, here in lanes_of(columns[0], columns[1]).rows(np.ones(len(ops.rows), bool)):
        tree = nest(times[0][here], times[1][here])
        rows_here: Any = np.flatnonzero((process == key[0]) & (~has_thread | (thread == key[1])))
        open_here = at(ops.rows[here], tree.innermost(time[rows_here]))
        several[rows_here] |= (op_of_event[rows_here] >= 0) & (open_here >= 0)
        op_of_event[rows_here] = np.where(open_here >= 0, open_here, op_of_event[rows_here])
    op_of_event[several] = NONE
    return op_of_event


def memory_changes(ops: Ops) -> pl.DataFrame:
    """Return the ``ordered`` events with ``op_row``: the row of the innermost op open at each; -1 if none."""
    events = ordered(ops.attribution.trace)
    return events.with_columns(pl.Series("op_row", _open_ops(ops, events), pl.Int64))


def changes_of_memory(profile: Answers) -> pl.DataFrame:
    """Each change of memory with the op that was open, in order."""
    return memory_changes(profile.of(op_index))


def of_memory(
    profile: Answers, schema: Any, make: Callable[[Ops, pl.DataFrame], pl.DataFrame]
) -> pl.DataFrame:
    """Return the frame that ``make`` computes from the ops and the changes of memory.

    Without recorded memory it is empty, and the ops are not computed, because attribution takes longest.
    """
    if profile.trace["allocations"].is_empty():
        return pl.DataFrame(schema=schema)
    return make(profile.of(op_index), profile.of(changes_of_memory))


def answer(profile: Answers) -> pl.DataFrame:
    """The peak of memory in use, by process and device; empty if memory was not recorded."""
    return memory_peaks(profile.trace)


def answer_by_op(profile: Answers) -> pl.DataFrame:
    """The ops that allocated memory, by how much of theirs was in use at the device's peak.

    Over all rows of a device, ``at_peak`` adds up to the peak exactly. It is null if the trace has no
    addresses or no number for the device.
    """
    return of_memory(profile, BY_OP, memory_by_op)


QUESTION = (
    Question(
        answer=answer,
        frames=(
            Frame(
                "memory()",
                "one row per process and device: the peak of memory in use",
                columns(
                    "process device peak_memory peak_time reserved in_use allocated released "
                    "allocations peak_reserved peak_unused most_unused unpaired",
                    """
                    peak_time: ns: time at which the peak was first reached
                    peak_reserved: bytes: device memory reserved by the allocator when the peak was first
                        reached
                    peak_unused: bytes: part of peak_reserved that was not in use
                    most_unused: bytes: most memory that was reserved and not in use at one time
                    unpaired: count: allocations without their release in the trace, and releases without
                        their allocation; null without addresses
                    """,
                ),
            ),
        ),
        merged=(Rows(),),
        reports=(
            Report(
                name="memory",
                title="Memory",
                empty="memory was not recorded (opscope run --memory records it)",
                shown=(
                    "process device peak_memory reserved peak_unused in_use allocated released "
                    "allocations unpaired"
                ),
                forms=[Column("peak_unused", "unused at the peak", units.size)],
                sums="",
            ),
        ),
    ),
    Question(
        answer=answer_by_op,
        frames=(
            Frame(
                "memory_by_op()",
                "one row per process, device and op that allocated memory",
                columns(
                    "process device at_peak share op direction layer source allocations bytes "
                    "reason",
                    """
                    share: fraction: at_peak / the device's peak
                    bytes: bytes: sum of everything that the op allocated
                    reason: text: why it has no op, or why at_peak is not known, from a closed list
                    """,
                ),
            ),
        ),
        merged=lacking.MEDIANS,
        reports=(
            Report(
                name="memory_by_op",
                title="Memory in use at the peak, by op",
                empty="memory was not recorded (opscope run --memory records it)",
                shown=("process device share at_peak op allocations direction layer reason source"),
                sums="at_peak allocations",
            ),
        ),
    ),
)
