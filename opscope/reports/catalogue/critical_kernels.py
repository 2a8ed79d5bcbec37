"""The report of the device work on the critical path, by name."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.critical import with_notes
from opscope.reports.report import Report

REPORT = Report(
    name="critical_kernels",
    order=539,
    title="Device work on the critical path",
    holds=FRAMES['critical_totals("kernel")'],
    frame=lambda profile: profile.critical_totals("kernel"),
    empty="no kernel, copy or set is on the critical path",
    shown=["share", "time", "name", "kind", "pieces"],
    table=with_notes,
    # its graph takes as long as all other reports together, and most memory
    written=False,
)
