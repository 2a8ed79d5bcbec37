"""The report of the notes that the trace's reader and recorder made."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="notes",
    order=990,
    title="Notes",
    holds=FRAMES["notes()"],
    frame=lambda profile: profile.notes(),
    empty="no notes",
)
