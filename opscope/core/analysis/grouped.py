"""Totals of ops added up by one of their columns, beside what has no op, with a running share."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.tables.columns import known_sum

#: By what totals can be added up, and the columns of ``totals.op_totals`` that it is.
BY: Final = {
    "kind": ("kind",),
    "op": ("op", "direction"),
    "layer": ("layer",),
    "source": ("source",),
    "dtype": ("dtypes",),
}
#: Of these a row has the value of most of its time, and how many there are in all.
_USUAL: Final = {
    "kind": (),
    "op": ("inputs", "layer", "source"),
    "layer": ("op", "source"),
    "source": ("op", "layer"),
    "dtype": ("op", "layer"),
}
_SUMS: Final = ("device_time", "calls", "kernels", "self_time", "cpu_time", "flops", "bytes")


def kind_totals(kinds: pl.DataFrame) -> pl.DataFrame:
    """One row per kind of work, by time: kind, device_time (ns), share, running, calls, op, ops.

    ``op`` has most of the kind's time (a kernel's name where no op is known), ``ops`` is how many there
    are. ``kinds`` is ``kinds.op_kinds``.
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
    """``totals`` (``totals.op_totals``) added up by ``op`` (and direction), ``layer``, ``source`` or
    ``dtype``; what has no op is a row for each ``reason`` (``gaps``: ``totals.unattributed``).

    Of what is added up (an op's inputs, layers and source lines; else ops) a row has the one with most
    time, and in ``shapes``, ``layers``, ``sources``, ``ops`` how many there are. ``kind`` is that of most
    of its time. ``share`` is of all device time, ``running`` the shares so far. Raises KeyError for
    another ``by``.
    """
    keys, usual = BY[by], _USUAL[by]
    texts = list(dict.fromkeys((*keys, *usual, "op", "direction")))
    # what is alike in these first: of a million ops in as many layers there are a few thousand
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
    """How many kernels and copies what has no op is."""
    kernels, copies = pl.col("kernels").cast(pl.Int64), pl.col("copies").cast(pl.Int64)
    return [(kernels + copies).alias("calls"), kernels]


def _kind_of_ops(kinds: pl.DataFrame) -> pl.LazyFrame:
    """The kind of most of the time of each op and direction."""
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
    """By time, with each row's share of it and the shares so far; null where no time is known."""
    made = frame.sort(
        "device_time", *keys, descending=[True, *[False] * len(keys)], nulls_last=True
    ).collect()
    whole = int(made["device_time"].sum())
    time = pl.col("device_time")
    known = pl.lit(whole > 0) & time.is_not_null()
    return made.with_columns(
        pl.when(known).then(time / max(whole, 1)).alias("share"),
        # of the sum, not of shares, and all of it is 1 exactly
        pl.when(known & (time.cum_sum() == whole))
        .then(1.0)
        .when(known)
        .then(time.cum_sum() / max(whole, 1))
        .alias("running"),
    )
