"""Memory that an allocator reserved and could not use: segments, blocks and fragmentation in a snapshot."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.question import lacking
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.trace import Trace

_POOL: Final = ("process", "device", "stream", "kind", "pool")
SCHEMA: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "stream": pl.Int64,
    "kind": pl.String,
    "pool": pl.String,
    "segments": pl.Int64,
    "reserved": pl.Int64,
    "in_use": pl.Int64,
    "pending": pl.Int64,
    "rounding": pl.Int64,
    "unused": pl.Int64,
    "unused_blocks": pl.Int64,
    "largest_unused": pl.Int64,
    "releasable": pl.Int64,
    "fragmentation": pl.Float64,
}


def memory_segments(trace: Trace) -> pl.DataFrame:
    """Return one row per process, device, stream, kind and pool of segments, the most reserved first (bytes).

    ``in_use``: blocks of tensors, and ``pending``: blocks that were released and that another stream still
    uses; with ``unused`` they add up to ``reserved``. ``rounding``: the part of ``in_use`` that the program
    did not request. ``releasable``: segments without any block in use, which ``empty_cache`` gives back.
    ``fragmentation``: 1 minus the largest unused block's part of all unused memory: if it is large, only
    small tensors fit.
    """
    segments = trace["memory_segments"]
    if segments.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    state = pl.col("state").cast(pl.String)
    is_tensor, is_unused = state == "active_allocated", state == "inactive"
    size = pl.col("bytes")
    key = ["process", "device", "segment"]
    of_segments = (
        trace["memory_blocks"]
        .group_by(key)
        .agg(
            size.filter(is_tensor).sum().alias("in_use"),
            size.filter(state.str.starts_with("active") & ~is_tensor).sum().alias("pending"),
            (size - pl.col("requested")).filter(is_tensor).sum().alias("rounding"),
            size.filter(is_unused).sum().alias("unused"),
            is_unused.sum().cast(pl.Int64).alias("unused_blocks"),
            size.filter(is_unused).max().alias("largest_unused"),
            is_unused.all().alias("is_free"),
        )
    )
    joined = segments.join(
        of_segments,
        left_on=["process", "device", "address"],
        right_on=key,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    rows = joined.group_by(_POOL).agg(
        pl.len().cast(pl.Int64).alias("segments"),
        size.sum().alias("reserved"),
        pl.col("in_use", "pending", "rounding", "unused", "unused_blocks").sum(),
        pl.col("largest_unused").max(),
        size.filter(pl.col("is_free").fill_null(False)).sum().alias("releasable"),
    )
    spread = 1 - pl.col("largest_unused") / pl.col("unused")
    return (
        rows.with_columns(pl.when(pl.col("unused") > 0).then(spread).alias("fragmentation"))
        .select(*SCHEMA)
        .cast(SCHEMA)  # type: ignore[arg-type]
        .sort(
            "process",
            "device",
            "reserved",
            "stream",
            "kind",
            "pool",
            descending=[False, False, True, *[False] * 3],
            nulls_last=True,
        )
    )


def answer(profile: Answers) -> pl.DataFrame:
    """The allocator's reserved memory at the snapshot, by pool of segments: used, unused, in pieces."""
    return memory_segments(profile.trace)


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "memory_segments()",
            "one row per process, device, stream, kind and pool of segments",
            columns(
                "process device stream kind pool segments reserved in_use pending rounding unused "
                "unused_blocks largest_unused releasable fragmentation",
                """
                kind: text: of which size the blocks are for: large, small
                pool: text: 0,0 is the program's; another is a CUDA graph's or a MemPool's
                segments: count: pieces of memory that the allocator took from the driver
                reserved: bytes: their size
                in_use: bytes: blocks that hold a tensor
                pending: bytes: blocks that were released and that another stream still uses
                rounding: bytes: part of in_use that the program did not ask for
                unused: bytes: blocks that hold nothing
                unused_blocks: count: those blocks
                largest_unused: bytes: the largest of them; no tensor beyond that fits without a new segment
                releasable: bytes: segments without any block in use, which torch.cuda.empty_cache gives back
                fragmentation: fraction: 1 - largest_unused / unused; null if nothing is unused
                """,
            ),
        ),
    ),
    merged=lacking.MOMENTS,
    reports=(
        Report(
            name="memory_segments",
            title="Reserved memory and its fragmentation",
            empty="no segments of an allocator (a memory snapshot of PyTorch has them)",
            sums="reserved",
        ),
    ),
)
