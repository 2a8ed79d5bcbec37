"""The report of the critical path's time by op."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.critical import EMPTY, with_notes
from opscope.reports.report import Report

REPORT = Report(
    name="critical_ops",
    order=533,
    title="Critical path by op",
    holds=FRAMES['critical_totals("op")'],
    frame=lambda profile: profile.critical_totals("op"),
    empty=EMPTY,
    shown=["share", "time", "op", "kind", "pieces"],
    table=with_notes,
    # its graph takes as long as all other reports together, and most memory
    written=False,
)
