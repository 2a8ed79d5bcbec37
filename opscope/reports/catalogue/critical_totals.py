"""The report of what the critical path's time went to."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.critical import EMPTY, with_notes
from opscope.reports.report import Report

REPORT = Report(
    name="critical_totals",
    order=530,
    title="Critical path: what held up the run",
    holds=FRAMES['critical_totals("kind")'],
    frame=lambda profile: profile.critical_totals(),
    empty=EMPTY,
    shown=["share", "time", "kind", "pieces"],
    table=with_notes,
    # its graph takes as long as all other reports together, and most memory
    written=False,
)
