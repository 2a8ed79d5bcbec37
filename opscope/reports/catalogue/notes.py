"""What the reader of the trace remarked."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="notes",
    order=270,
    title="Notes",
    holds=FRAMES["notes()"],
    frame=lambda profile: profile.notes(),
    empty="none",
)
