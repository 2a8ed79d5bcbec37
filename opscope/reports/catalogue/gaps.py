"""Time without an op, by the user's range, the phase and the thread's state."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="gaps",
    order=30,
    title="Outside any op",
    holds=FRAMES["gaps()"],
    frame=lambda profile: profile.gaps(),
    empty="nothing: all has its op",
)
