"""The report of memory in use and reserved over time."""

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

#: The fewest points that keep the peak.
_FEWEST = 6


def curve(report: Report, profile: Profile, view: View) -> Table:
    """Return the curve in as few points as the table has rows, with times since the first change."""
    import polars as pl

    devices = len(profile.memory())
    if view.top is None or not devices:
        frame = report.frame(profile)
    else:
        frame = profile.memory_curve(points=max(view.top // devices, _FEWEST))
    table = listed(
        report, frame.with_columns(pl.col("time") - pl.col("time").min()), replace(view, top=None)
    )
    if not devices:
        return table
    notes = ["times are since the first change of memory; every device's peak is among its points"]
    return replace(table, footnotes=[*table.footnotes, *notes])


REPORT = Report(
    name="memory_curve",
    order=450,
    title="Memory over time",
    holds=FRAMES["memory_curve()"],
    frame=lambda profile: profile.memory_curve(),
    empty="memory was not recorded (opscope run --memory records it)",
    shown=["process", "device", "time", "in_use", "reserved", "unused"],
    forms=[Column("in_use", "in use", units.size)],
    table=curve,
    written=False,
)
