"""Blocks of memory: each allocation paired with its release by address, or the reason why one is missing."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.tables.trace import Trace

_PLACE: Final = ("process", "device")
#: Reasons why a block has no release, or no allocation.
NOT_RELEASED = "not released in the trace"
ALLOCATED_AGAIN = "its release is not in the trace: the address was allocated again"
BEFORE_TRACE = "allocated before the trace"
NO_ALLOCATION = "its allocation is not in the trace: the address was released twice"
NO_ADDRESS = "the trace has no addresses"
NO_DEVICE = "the trace does not name the device"
_BLOCK: Final = (*_PLACE, "address")


def unused_bytes() -> pl.Expr:
    """Return the reserved bytes that are not in use; null if unknown.

    The CPU's allocator reserves nothing; if less is reserved than in use, the figures come from several
    allocators.
    """
    is_known = (pl.col("device") != -1) & (pl.col("reserved") >= pl.col("total"))
    return pl.when(is_known).then(pl.col("reserved") - pl.col("total"))


def ordered(trace: Trace) -> pl.DataFrame:
    """Return the events by process, device and time, with a running total if the source has no total.

    If a source reports 0 reserved bytes throughout, as PyTorch's profiler does for the CPU, they are unknown.
    ``counted``: whether the total counts the event's block. PyTorch reports shared memory on the CPU, as of a
    loader's workers, with a total of 0: the total is then that of the event before.
    """
    changes = trace["allocations"].filter(pl.col("bytes").is_not_null())
    in_order = changes.sort(*_PLACE, "time", maintain_order=True)
    total = pl.col("total")
    before = pl.when(total != 0).then(total).shift().forward_fill().fill_null(0).over(_PLACE)
    counted = ((pl.col("device") != -1) | (total != 0) | (before + pl.col("bytes") == 0)).fill_null(
        True
    )
    own = pl.when(counted).then(total).forward_fill().fill_null(0).over(_PLACE)
    return in_order.with_columns(
        pl.when(total.is_not_null().all().over(_PLACE))
        .then(own)
        .otherwise(pl.col("bytes").cum_sum().over(_PLACE))
        .alias("total"),
        counted.alias("counted"),
        pl.when((pl.col("reserved") != 0).any().over(_PLACE)).then("reserved").alias("reserved"),
    )


def blocks(events: pl.DataFrame) -> pl.DataFrame:
    """Return one row per block of ``ordered`` events, in the order in which they were first seen.

    ``row`` and ``end_row``: the places of its allocation and its release among ``events``; ``bytes``: its
    size; ``thread``: the thread that allocated it; ``start`` and ``end``: the times (ns) of the two. If one
    is missing, its columns are null and ``unpaired`` says why. So the number of events with a size is twice
    the paired rows plus the others.
    """
    rows = events.with_row_index("row").cast({"row": pl.Int64}).filter(pl.col("bytes") != 0)
    rows = rows.select("row", *_BLOCK, "thread", "bytes", "time").sort(*_BLOCK, "row")
    is_complete = pl.all_horizontal(pl.col(name).is_not_null() for name in ("device", "address"))
    follows = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(1)) for name in _BLOCK)
    followed = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(-1)) for name in _BLOCK)
    gained = pl.col("bytes") > 0
    before = gained.shift(1) & follows & is_complete
    after_is_release = ~gained.shift(-1) & followed & is_complete
    found = rows.with_columns(
        gained.alias("gained"),
        is_complete.alias("known"),
        before.fill_null(False).alias("ends_block"),
        (follows & is_complete).fill_null(False).alias("seen_before"),
        after_is_release.fill_null(False).alias("paired"),
        (followed & is_complete).fill_null(False).alias("seen_again"),
        pl.col("row").shift(-1).alias("next_row"),
        pl.col("time").shift(-1).alias("next_time"),
    ).filter(pl.col("gained") | ~pl.col("ends_block"))
    starts, paired = pl.col("gained"), pl.col("gained") & pl.col("paired")
    release = pl.when(paired).then
    why = (
        pl.when(paired)
        .then(None)
        .when(~pl.col("known"))
        .then(
            pl.when(pl.col("address").is_null())
            .then(pl.lit(NO_ADDRESS))
            .otherwise(pl.lit(NO_DEVICE))
        )
        .when(starts)
        .then(pl.when("seen_again").then(pl.lit(ALLOCATED_AGAIN)).otherwise(pl.lit(NOT_RELEASED)))
        .otherwise(
            pl.when("seen_before").then(pl.lit(NO_ALLOCATION)).otherwise(pl.lit(BEFORE_TRACE))
        )
    )
    return (
        found.sort("row")
        .select(
            *_BLOCK,
            pl.col("bytes").abs(),
            pl.when(starts).then("row").alias("row"),
            release("next_row").when(~starts).then("row").alias("end_row"),
            pl.when(starts).then("thread").alias("thread"),
            pl.when(starts).then("time").alias("start"),
            release("next_time").when(~starts).then("time").alias("end"),
            why.alias("unpaired"),
        )
    )  # fmt: skip


def unpaired(table: pl.DataFrame) -> pl.DataFrame:
    """Return by process and device how many ``blocks`` lack their allocation or release; null without
    addresses."""
    why = pl.col("unpaired")
    untold = why.is_in([NO_ADDRESS, NO_DEVICE]).any()
    return table.group_by(_PLACE).agg(
        pl.when(~untold).then(why.is_not_null().sum().cast(pl.Int64)).alias("unpaired")
    )
