"""The first rows of a finding's evidence, and one row for the others: their times add up to the whole."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.finding import EVIDENCE

#: How many rows of a finding's evidence are given one by one.
MOST: Final = 20


def with_rest(rows: pl.DataFrame, most: int = MOST) -> pl.DataFrame:
    """Return the first rows and, if there are more, one row with the others' ``count`` and ``time`` (ns).
    ``rows`` only have columns of EVIDENCE, which are cast to its types. ``detail`` of the last row says how
    many rows it sums up. A sum of times leaves out unknown ones; without known times it is null."""
    kept = rows.select(
        pl.col(name).cast(EVIDENCE[name]) for name in EVIDENCE if name in rows.columns
    )
    if len(kept) <= most:
        return kept
    left = kept[most:]
    sums = [
        pl.when(pl.col(name).count() > 0).then(pl.col(name).sum()).alias(name)
        for name in ("count", "time")
        if name in kept.columns
    ]
    rest = left.select(*sums, pl.lit(f"{len(left):,} more rows").alias("detail"))
    return pl.concat([kept[:most], rest], how="diagonal").select(
        name for name in EVIDENCE if name in kept.columns or name == "detail"
    )
