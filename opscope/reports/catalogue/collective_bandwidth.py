"""The report of the bandwidth of collectives without waiting."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="collective_bandwidth",
    order=344,
    title="Bandwidth of collectives without waiting",
    holds=FRAMES["collective_bandwidth()"],
    frame=lambda profile: profile.collective_bandwidth(),
    empty="no collective whose time is known in this profile",
)
