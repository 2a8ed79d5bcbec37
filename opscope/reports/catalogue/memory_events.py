"""The report of the blocks of memory: each allocation with its release."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from opscope.core.question import units
from opscope.core.question.layout import Column
from opscope.frames import FRAMES
from opscope.reports.report import Report, View
from opscope.reports.tables import listed

if TYPE_CHECKING:
    from opscope.core.question.layout import Table
    from opscope.profile import Profile


def blocks(report: Report, profile: Profile, view: View) -> Table:
    """Return the blocks, the largest first, with times since the first change of memory."""
    import polars as pl

    frame = report.frame(profile)
    if frame.is_empty():
        return listed(report, frame, view)
    first = pl.min_horizontal(pl.col("allocated_at").min(), pl.col("released_at").min())
    since = frame.with_columns(pl.col("allocated_at", "released_at") - first)
    table = listed(report, since.sort("bytes", descending=True, maintain_order=True), view)
    alone = int(frame["reason"].is_not_null().sum())
    notes = ["the largest first; times are since the first change of memory"]
    if alone:
        notes.append(f"{alone:,} lack their allocation or their release: see the column reason")
    return replace(table, footnotes=[*table.footnotes, *notes])


REPORT = Report(
    name="memory_events",
    order=460,
    title="Blocks of memory",
    holds=FRAMES["memory_events()"],
    frame=lambda profile: profile.memory_events(),
    empty="memory was not recorded (opscope run --memory records it)",
    shown=[
        "device",
        "bytes",
        "kind",
        "op",
        "layer",
        "step",
        "allocated_at",
        "released_at",
        "duration",
        "release_op",
        "reason",
    ],
    forms=[
        Column("allocated_at", "allocated at", units.time),
        Column("released_at", "released at", units.time),
    ],
    table=blocks,
    written=False,
)
