"""Add up the totals of ops by one of their columns, with the time without an op and a running share."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.tables.columns import known_sum

#: The words by which totals can be added up, each with its columns of ``totals.op_totals``.
BY: Final = {
    "kind": ("kind",),
    "op": ("op", "direction"),
    "layer": ("layer",),
    "source": ("source",),
    "dtype": ("dtypes",),
}
#: The columns of which a row has the value with most of its time, and the number of distinct values.
_USUAL: Final = {
    "kind": (),
    "op": ("inputs", "layer", "source"),
    "layer": ("op", "source"),
    "source": ("op", "layer"),
    "dtype": ("op", "layer"),
}
_SUMS: Final = ("device_time", "calls", "kernels", "self_time", "cpu_time", "flops", "bytes")


def kind_totals(kinds: pl.DataFrame) -> pl.DataFrame:
    """Return one row per kind of work, by time: kind, device_time (ns), share, running, calls, op, ops.

    ``op`` is the op with most of the kind's time (a kernel's name if no op is known), ``ops`` the number
    of distinct ones. ``kinds`` is the result of ``kinds.op_kinds``.
    """
    work = kinds.lazy().with_columns(pl.col("kind", "op", "name", "reason").cast(pl.String))
    what = pl.coalesce("op", "name", "reason").alias("op")
    by_op = (
        work.with_columns(what)
        .group_by("kind", "op")
        .agg(pl.col("device_time").sum(), known_sum("calls"))
        .sort("device_time", "op", descending=[True, False], nulls_last=True)
    )
    return _shared(
        by_op.group_by("kind", maintain_order=True).agg(
            pl.col("device_time").sum(),
            known_sum("calls"),
            pl.col("op").drop_nulls().first(),
            pl.col("op").drop_nulls().n_unique().cast(pl.Int64).alias("ops"),
        ),
        ("kind",),
    ).select("kind", "device_time", "share", "running", "calls", "op", "ops")


def totals_by(
    totals: pl.DataFrame, gaps: pl.DataFrame, kinds: pl.DataFrame, by: str
) -> pl.DataFrame:
    """Return ``totals`` (``totals.op_totals``) added up by ``op`` (and direction), ``layer``, ``source`` or
    ``dtype``; time without an op is a row for each ``reason`` (``gaps``: ``totals.unattributed``).

    For the other columns (an op's inputs, layers and source lines; else ops) a row has the value with most
    of its time, and in ``shapes``, ``layers``, ``sources``, ``ops`` the number of distinct values.
    ``kind`` is the kind of most of its time. ``share`` is of all device time, ``running`` the sum of the
    shares so far. Raises KeyError for another ``by``.
    """
    keys, usual = BY[by], _USUAL[by]
    texts = list(dict.fromkeys((*keys, *usual, "op", "direction")))
    # add up rows with equal texts first: a million ops in as many layers become a few thousand rows
    alike = totals.lazy().group_by(texts).agg(map(known_sum, _SUMS)).collect()
    rows = alike.lazy().with_columns(pl.col(texts).cast(pl.String))
    rows = rows.join(_kind_of_ops(kinds), on=["op", "direction"], how="left", nulls_equal=True)
    by_time = pl.col("device_time").fill_null(0)
    summed = rows.group_by(keys).agg(map(known_sum, _SUMS))
    for name in (*usual, "kind"):
        most = (
            rows.group_by(*keys, name)
            .agg(by_time.sum().alias("weight"), pl.col("calls").sum().alias("times"))
            .sort("weight", "times", name, descending=[True, True, False], nulls_last=True)
            .group_by(keys)
            .agg(
                pl.col(name).first(),
                pl.col(name).n_unique().cast(pl.Int64).alias(_MANY[name]),
            )
        )
        summed = summed.join(most, on=keys, how="left", nulls_equal=True)
    without = gaps.lazy().select(
        pl.col("reason").cast(pl.String), pl.col("time").alias("device_time"), *_launched(gaps)
    )
    whole = pl.concat([summed, without], how="diagonal")
    counts = [_MANY[name] for name in usual]
    return _shared(whole, (*keys, "reason")).select(
        *keys, "kind", *usual, *counts, "device_time", "share", "running",
        *(name for name in _SUMS if name != "device_time"), "reason",
    )  # fmt: skip


_MANY: Final = {
    "inputs": "shapes",
    "layer": "layers",
    "source": "sources",
    "op": "ops",
    "kind": "kinds",
}


def _launched(gaps: pl.DataFrame) -> list[pl.Expr]:
    """Return the numbers of kernels and copies, and of kernels, without an op."""
    kernels, copies = pl.col("kernels").cast(pl.Int64), pl.col("copies").cast(pl.Int64)
    return [(kernels + copies).alias("calls"), kernels]


def _kind_of_ops(kinds: pl.DataFrame) -> pl.LazyFrame:
    """Return the kind of most of the time of each op and direction."""
    return (
        kinds.lazy()
        .select(pl.col("op", "direction", "kind").cast(pl.String), "device_time")
        .filter(pl.col("op").is_not_null())
        .group_by("op", "direction", "kind")
        .agg(pl.col("device_time").sum())
        .sort("device_time", "kind", descending=[True, False])
        .group_by("op", "direction")
        .agg(pl.col("kind").first())
    )


def _shared(frame: pl.LazyFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """Return the rows by time, each with its share and the sum of shares so far; null if no time is known."""
    made = frame.sort(
        "device_time", *keys, descending=[True, *[False] * len(keys)], nulls_last=True
    ).collect()
    whole = int(made["device_time"].sum())
    time = pl.col("device_time")
    known = pl.lit(whole > 0) & time.is_not_null()
    return made.with_columns(
        pl.when(known).then(time / max(whole, 1)).alias("share"),
        # from the sum of times, not of shares; exactly 1 for the last row
        pl.when(known & (time.cum_sum() == whole))
        .then(1.0)
        .when(known)
        .then(time.cum_sum() / max(whole, 1))
        .alias("running"),
    )
