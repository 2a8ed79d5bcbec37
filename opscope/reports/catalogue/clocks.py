"""The report of clocks: how the times of each machine were moved to the first machine's clock."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="clocks",
    order=240,
    title="Clocks",
    holds=FRAMES["clocks()"],
    frame=lambda profile: profile.clocks(),
    empty="not known: this file format does not record the machines' clocks",
)
