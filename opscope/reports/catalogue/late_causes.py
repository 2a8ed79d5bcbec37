"""The report of why ranks enter collectives last."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="late_causes",
    order=334,
    title="Why ranks are late",
    holds=FRAMES["late_causes()"],
    frame=lambda profile: profile.late_causes(),
    empty="no collective with a last rank: load the traces of all ranks together",
)
