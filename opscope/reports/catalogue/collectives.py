"""The report of the collectives of each process group: sizes, times, bandwidth."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="collectives",
    order=210,
    title="Collectives",
    holds=FRAMES["collectives()"],
    frame=lambda profile: profile.collectives(),
    empty="no collectives in this profile",
)
