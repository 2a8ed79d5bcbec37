"""Impossible and repeated records of a trace, in sentences that precede any advice."""

from __future__ import annotations

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.question import units
from opscope.core.tables.doubled import COUNTED
from opscope.core.tables.impossible import IMPOSSIBLE


def doubts(profile: Answers) -> list[str]:
    """Records with impossible times that were clipped, left out or not used, and records that the file
    holds again, a sentence each."""
    notes = profile._all_notes()
    rows = notes.filter(pl.col("what").cast(pl.String).str.contains(f"{IMPOSSIBLE}|{COUNTED}"))
    return [
        units.text(what) + (f" ({units.count(number)})" if number > 1 else "")
        for what, number in rows.group_by("what", maintain_order=True)
        .agg(pl.col("how_many").sum())
        .rows()
    ]
