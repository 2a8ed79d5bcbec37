"""The report of time without an op, by reason."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="unattributed",
    order=20,
    title="Time without an op, by reason",
    holds=FRAMES["unattributed()"],
    frame=lambda profile: profile.unattributed(),
    empty="none: all time has an op",
)
