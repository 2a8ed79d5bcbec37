"""The report of waiting and transfer in collectives."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="collective_waits",
    order=335,
    title="Waiting in collectives",
    holds=FRAMES["collective_waits()"],
    frame=lambda profile: profile.collective_waits(),
    empty="no collective whose time is known in this profile",
)
