"""The report of time without an op, by reason, user range, phase and the thread's state."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="gaps",
    order=30,
    title="Time without an op, in detail",
    holds=FRAMES["gaps()"],
    frame=lambda profile: profile.gaps(),
    empty="none: all time has an op",
)
