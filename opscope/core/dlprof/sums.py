"""Add up the times of instances: total, average, least and most, named as DLProf names them."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.dlprof.groups import Groups
from opscope.core.dlprof.model import TIMES

#: What DLProf calls the times of ``TIMES``.
CALLED: Final = {
    "cpu": "CPU Time (ns)",
    "gpu": "GPU Time (ns)",
    "overhead": "CPU Overhead (ns)",
    "idle": "GPU Idle (ns)",
}


def statistics(
    groups: Groups, column: pl.Series, called: str, dot: str = "."
) -> dict[str, pl.Series]:
    """Return total, average, least and most of a column in each group."""
    titles = ("Total", f"Avg{dot}", "Min", "Max")
    values = groups.statistics(column)
    return {f"{title} {called}": value for title, value in zip(titles, values, strict=True)}


def times(groups: Groups, frame: pl.DataFrame) -> dict[str, pl.Series]:
    """Return the sixteen columns of the four times."""
    columns: dict[str, pl.Series] = {}
    for name in TIMES:
        columns |= statistics(groups, frame[name], CALLED[name])
    return columns


def yes(name: str) -> pl.Expr:
    """Return ``yes`` or ``no``; null if it is not known."""
    return pl.when(pl.col(name)).then(pl.lit("yes")).when(~pl.col(name)).then(pl.lit("no"))


def yes_or_no(column: pl.Series) -> pl.Series:
    """Return ``yes`` or ``no``; null if it is not known."""
    return column.to_frame("known").select(yes("known")).to_series()
