"""The report of collectives that ranks do not leave together."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="collective_ends",
    order=348,
    title="Ends of collectives",
    holds=FRAMES["collective_ends()"],
    frame=lambda profile: profile.collective_ends(),
    empty="no collective in which the ends of two ranks are known",
)
