"""The report of the critical path's time by step."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.critical import EMPTY, with_notes
from opscope.reports.report import Report

REPORT = Report(
    name="critical_steps",
    order=542,
    title="Critical path by step",
    holds=FRAMES['critical_totals("step")'],
    frame=lambda profile: profile.critical_totals("step"),
    empty=EMPTY,
    shown=["process", "step", "share", "time", "kind", "pieces"],
    table=with_notes,
    written=False,
)
