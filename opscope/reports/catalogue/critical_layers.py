"""The report of the critical path's time by layer."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.critical import EMPTY, with_notes
from opscope.reports.report import Report

REPORT = Report(
    name="critical_layers",
    order=536,
    title="Critical path by layer",
    holds=FRAMES['critical_totals("layer")'],
    frame=lambda profile: profile.critical_totals("layer"),
    empty=EMPTY,
    shown=["share", "time", "layer", "kind", "pieces"],
    table=with_notes,
    # its graph takes as long as all other reports together, and most memory
    written=False,
)
