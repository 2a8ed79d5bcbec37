"""The report of communication: how long each rank communicates, and how much of that other work hides."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="communication",
    order=200,
    title="Communication",
    holds=FRAMES["communication()"],
    frame=lambda profile: profile.communication(),
    empty="no collectives and no kernels in this profile",
)
