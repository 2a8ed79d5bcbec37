"""What the cost model does not know, ranked by the time it takes: the rest of both coverage shares."""

from __future__ import annotations

import numpy as np
import polars as pl

from opscope.core.analysis.chunks import SCHEMA, at_most, bound
from opscope.core.analysis.ops import Ops
from opscope.core.analysis.summary import FREE
from opscope.core.attribute import REASONS
from opscope.core.columns import at, gather, spread
from opscope.core.intervals import NONE, Ints

BOTH, FLOPS, BYTES = "FLOPs, bytes", "FLOPs", "bytes"
#: A kernel whose op has a cost that does not count, because an op around it does.
_INSIDE = "its cost counts in an op around it"


def missing_costs(ops: Ops, executed: pl.DataFrame, memops: pl.DataFrame) -> pl.DataFrame:
    """One row per op name without known FLOPs or bytes: op, op_type, lacks, calls, time (ns), share, why.

    ``lacks`` is ``FLOPs, bytes``, ``FLOPs`` or ``bytes``. Where the trace has kernels, these are the
    kernels and copies that the summary's ``flops_share`` and ``bytes_share`` leave out: a compiled
    region under the region's name, a kernel that no op launched under its own; ``calls`` are kernels.
    ``share`` is of the device time that has a launch record, as in the summary: of what lacks FLOPs
    it adds up to 1 − ``flops_share``, the kernels without a launch record left out, which are listed
    besides (``why`` says so). Elsewhere time is the ops' self time. What took no time is left out.
    ``why`` of kernels over lists of tensors ends with what their grids bound (``chunks``).
    """
    trace = ops.attribution.trace
    if not (trace.has("kernels") or trace.has("memops")):
        return _ranked(_of_ops(ops), int(ops.times.self_time.sum()))
    found = pl.concat([_of_kernels(ops, executed), _of_memops(ops, memops)], how="diagonal_relaxed")
    whole = sum(
        int(table["duration"].filter(table["launched"]).sum()) for table in (executed, memops)
    )
    return _ranked(found, whole)


def _of_kernels(ops: Ops, executed: pl.DataFrame) -> pl.DataFrame:
    launched = ops.attribution.kernels
    rows = launched.op.astype(np.int64)
    frame = _reasons(ops, rows, ops.costs.costing(rows)).with_columns(
        executed["flops"].is_not_null().alias("has_flops"),
        executed["bytes"].is_not_null().alias("has_bytes"),
        executed["duration"].alias("time"),
        executed["name"],
        spread("gap", list(REASONS), launched.reason),
        *at_most(ops.attribution.trace["kernels"].select("name", "grid")).get_columns(),
    )
    return frame.with_columns(
        pl.coalesce(pl.col("op", "name").cast(pl.String)).alias("op"),
        pl.coalesce(pl.col("gap", "why").cast(pl.String)).alias("why"),
        # why a kernel has no op is one of a closed list, as it is
        *(pl.when(pl.col("gap").is_null()).then(pl.col(one)).alias(one) for one in SCHEMA),
    ).drop("name", "gap")


def _of_memops(ops: Ops, memops: pl.DataFrame) -> pl.DataFrame:
    """Copies and sets compute nothing; their bytes are measured, where the trace has them."""
    table = ops.attribution.trace["memops"]
    bare = pl.lit(None, pl.String)
    return memops.select(
        table["kind"].cast(pl.String).alias("op"),
        pl.lit("copy").alias("op_type"),
        bare.alias("why"),
        pl.lit("the trace does not record its size").alias("bytes_why"),
        pl.lit(value=True).alias("has_flops"),
        table["bytes"].is_not_null().alias("has_bytes"),
        pl.col("duration").alias("time"),
    )


def _of_ops(ops: Ops) -> pl.DataFrame:
    times = ops.times
    busy = times.self_time > 0
    rows = times.rows[busy]
    costing = ops.costs.costing(rows)
    bytes_known = gather(ops.costs.catalogue["bytes"], at(ops.costs.place, costing)).is_not_null()
    return _reasons(ops, rows, costing).with_columns(
        pl.Series("has_flops", costing != NONE),
        bytes_known.alias("has_bytes"),
        pl.Series("time", times.self_time[busy]),
    )


def _reasons(ops: Ops, rows: Ints, costing: Ints) -> pl.DataFrame:
    """op, op_type and why its FLOPs and its bytes are not known, for each op row (-1: none)."""
    reading = at(ops.attribution.meaning.reading, rows)
    catalogue, place = ops.costs.catalogue, ops.costs.place
    frame = pl.DataFrame(
        {
            "op": gather(ops.readings["op"], reading),
            "op_type": gather(ops.readings["op_type"], reading),
            "why": gather(catalogue["reason"], at(place, rows)),
            "bytes_why": gather(catalogue["bytes_reason"], at(place, costing)),
        }
    )
    return frame.with_columns(pl.col("op", "op_type").cast(pl.String))


def _ranked(found: pl.DataFrame, whole: int) -> pl.DataFrame:
    """The table of ``missing_costs`` from one row per kernel, copy or op."""
    if "elements" not in found.columns:
        found = found.with_columns(
            pl.lit(None, dtype).alias(name) for name, dtype in SCHEMA.items()
        )
    free = pl.col("op_type").is_in(FREE).fill_null(value=False)
    no_flops, no_bytes = ~pl.col("has_flops") & ~free, ~pl.col("has_bytes")
    ranked = (
        found.lazy()
        .filter((no_flops | no_bytes) & (pl.col("time") > 0))
        .with_columns(
            pl.when(no_flops & no_bytes)
            .then(pl.lit(BOTH))
            .when(no_flops)
            .then(pl.lit(FLOPS))
            .otherwise(pl.lit(BYTES))
            .alias("lacks"),
            pl.when(no_flops)
            .then(pl.col("why"))
            .otherwise(pl.coalesce("bytes_why", "why"))
            .fill_null(_INSIDE)
            .alias("why"),
        )
        .group_by("op", "op_type", "lacks", "why")
        .agg(
            pl.len().cast(pl.Int64).alias("calls"),
            pl.col("time").sum(),
            # one kernel without a bound, and there is none of all
            *(
                pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).sum()).alias(name)
                for name in SCHEMA
            ),
        )
        .with_columns((pl.col("time") / (whole or None)).alias("share"))
        .sort("time", "op", "lacks", descending=[True, False, False])
        .collect()
    )
    limits = pl.Series([bound(*pair) for pair in ranked.select(*SCHEMA).rows()], dtype=pl.String)
    return ranked.with_columns(pl.col("why") + limits).select(
        "op", "op_type", "lacks", "calls", "time", "share", "why"
    )
