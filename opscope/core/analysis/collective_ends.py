"""Collectives that ranks do not leave together, beyond what their clocks explain."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.analysis.stragglers import NOISE
from opscope.core.job.exchanges import GROUP, SYNCHRONISING

ENDS: Final = {
    "kind": pl.String,
    "group": pl.String,
    "members": pl.String,
    "size": pl.Int64,
    "compared": pl.Int64,
    "median_apart": pl.Float64,
    "max_apart": pl.Int64,
    "clock_error": pl.Int64,
    "differing": pl.Int64,
    "process": pl.Int32,
    "rank": pl.Int32,
    "left_last": pl.Int64,
    "reason": pl.String,
}
UNKNOWN: Final = "the error of a machine's clock is not known"
NOBODY: Final = "no one rank leaves last most often"
_ONE: Final = (*GROUP, "number")


def collective_ends(
    exchanged: pl.DataFrame, errors: pl.DataFrame, ranks: pl.DataFrame
) -> pl.DataFrame:
    """Return one row per kind and group (``ENDS``; ns), those whose ends differ most first.

    ``exchanged``: ``distributed.exchanged``, rows of all ranks, on one clock; ``errors``: process, machine
    and ``error_ns``, that of the machine's clock; ``ranks``: process and rank. ``clock_error``: the largest
    by which two ranks' clocks may be apart (0 on one machine). ``differing``: collectives whose ends are
    farther apart than that, and than a microsecond. The rank that leaves last most often of these, and how
    often.
    """
    kind = pl.col("kind").cast(pl.String)
    rows = exchanged.filter(
        kind.is_in(SYNCHRONISING).fill_null(False)
        & pl.col("number").is_not_null()
        & pl.col("end").is_not_null()
    ).with_columns(kind.alias("kind"), pl.col("group", "members").cast(pl.String))
    rows = rows.filter(pl.col("process").n_unique().over(_ONE) > 1)
    if rows.is_empty():
        return pl.DataFrame(schema=ENDS)
    rows = rows.join(errors.unique("process", keep="first"), on="process", how="left")
    several = pl.col("machine").n_unique().over(_ONE) > 1
    error = pl.when(~several).then(0).when(pl.col("error_ns").is_null().any().over(_ONE)).then(None)
    rows = rows.with_columns(
        (pl.col("end").max().over(_ONE) - pl.col("end").min().over(_ONE)).alias("apart"),
        (pl.col("end") == pl.col("end").max().over(_ONE)).alias("latest"),
        error.otherwise(pl.col("error_ns").top_k(2).sum().over(_ONE)).alias("clock_error"),
    ).with_columns(
        (pl.col("apart") > pl.max_horizontal(pl.col("clock_error"), pl.lit(NOISE))).alias("differs")
    )
    rows = rows.with_columns(
        pl.when(pl.col("clock_error").is_not_null()).then("differs").alias("differs")
    )
    key = ["kind", *GROUP]
    each = rows.unique([*key, "number"], keep="first")
    sums = each.group_by(key).agg(
        pl.len().alias("compared"),
        pl.col("apart").median().alias("median_apart"),
        pl.col("apart").max().alias("max_apart"),
        pl.when(pl.col("clock_error").is_null().any().not_())
        .then(pl.col("clock_error").max())
        .alias("clock_error"),
        pl.when(pl.col("differs").count() > 0).then(pl.col("differs").sum()).alias("differing"),
    )
    latest = (
        rows.filter(pl.col("differs").fill_null(False) & pl.col("latest"))
        .group_by(*key, "process")
        .agg(pl.len().alias("left_last"))
        .filter(pl.col("left_last") == pl.col("left_last").max().over(key))
        .filter(pl.len().over(key) == 1)
    )
    made = sums.join(latest, on=key, how="left", nulls_equal=True).join(
        ranks.unique("process", keep="first").select("process", "rank"), on="process", how="left"
    )
    return (
        made.with_columns(
            pl.when(pl.col("clock_error").is_null())
            .then(pl.lit(UNKNOWN))
            .when((pl.col("differing") > 0) & pl.col("process").is_null())
            .then(pl.lit(NOBODY))
            .alias("reason")
        )
        .cast(dict(ENDS.items()))
        .sort(
            "differing", "max_apart", *key, descending=[True, True, *[False] * len(key)],
            nulls_last=True,
        )
        .select(*ENDS)
    )  # fmt: skip
