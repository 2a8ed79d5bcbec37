"""The report of process groups and their ranks."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="groups",
    order=220,
    title="Process groups",
    holds=FRAMES["groups()"],
    frame=lambda profile: profile.groups(),
    empty="no process groups were recorded",
)
