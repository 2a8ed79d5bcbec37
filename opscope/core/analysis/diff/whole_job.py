"""The totals of two whole jobs side by side: ops and kernels, over everything recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

_BOTH: Final = {
    "a": pl.Int64,
    "b": pl.Int64,
    "change": pl.Int64,
    "ratio": pl.Float64,
    "total_calls_a": pl.Int64,
    "total_calls_b": pl.Int64,
}
OP_TOTALS: Final = {"op": pl.String, "direction": pl.String, "reason": pl.String, **_BOTH}
KERNEL_TOTALS: Final = {"name": pl.String, **_BOTH}
#: The reason of device time without a known op.
NO_OP: Final = "no op is known of it"


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of a job's ops and kernels (ns): ``op``, ``direction``, ``time``, ``calls``; and
    ``name``, ``time``, ``calls``. The ops' times add up to the device time: a row without an op holds the
    rest."""

    ops: pl.DataFrame
    kernels: pl.DataFrame


def totals(ops: pl.DataFrame, kernels: pl.DataFrame, device_time: int) -> Totals:
    """Return the totals of ``op_totals``, ``kernel_totals`` and the summary's device time (ns)."""
    named = (
        ops.group_by(pl.col("op", "direction").cast(pl.String))
        .agg(pl.col("device_time").sum().alias("time"), pl.col("calls").sum().cast(pl.Int64))
        .sort("op", "direction")
    )
    rest = device_time - int(named["time"].sum() or 0)
    row = pl.DataFrame(
        {"op": None, "direction": None, "time": rest, "calls": None}, schema=named.schema
    )
    return Totals(
        pl.concat([named, row]) if rest else named,
        kernels.select(pl.col("name").cast(pl.String), pl.col("total").alias("time"), "calls"),
    )


def op_totals(a: Totals | None, b: Totals | None) -> pl.DataFrame:
    """Return one row per op and direction (``OP_TOTALS``), the largest change first; empty without both."""
    if a is None or b is None:
        return pl.DataFrame(schema=OP_TOTALS)
    rows = _beside(a.ops, b.ops, ["op", "direction"])
    why = pl.when(pl.col("op").is_null()).then(pl.lit(NO_OP)).alias("reason")
    return rows.with_columns(why).select(
        pl.col(name).cast(kind) for name, kind in OP_TOTALS.items()
    )


def kernel_totals(a: Totals | None, b: Totals | None) -> pl.DataFrame:
    """Return one row per kernel (``KERNEL_TOTALS``), the largest change first; empty without both."""
    if a is None or b is None:
        return pl.DataFrame(schema=KERNEL_TOTALS)
    rows = _beside(a.kernels, b.kernels, ["name"])
    return rows.select(pl.col(name).cast(kind) for name, kind in KERNEL_TOTALS.items())


def _beside(a: pl.DataFrame, b: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Return the rows of both; a row that one of them lacks has time 0 there."""
    sides = [
        table.rename({"time": side, "calls": f"total_calls_{side}"})
        for table, side in zip((a, b), ("a", "b"), strict=True)
    ]
    rows = sides[0].join(sides[1], on=by, how="full", coalesce=True, nulls_equal=True)
    rows = rows.with_columns(pl.col("a", "b").fill_null(0))
    rows = rows.with_columns(
        pl.when(pl.col(by[0]).is_not_null()).then(pl.col(name).fill_null(0)).alias(name)
        for name in ("total_calls_a", "total_calls_b")
    )
    change = pl.col("b") - pl.col("a")
    return rows.with_columns(
        change.alias("change"),
        pl.when(pl.col("a") > 0).then(change / pl.col("a")).alias("ratio"),
    ).sort(change.abs(), *by, descending=[True, *(False for _ in by)], nulls_last=True)
