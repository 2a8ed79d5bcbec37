"""The report of collectives that not all ranks entered alike."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="collective_faults",
    order=342,
    title="Missing and mismatched collectives",
    holds=FRAMES["collective_faults()"],
    frame=lambda profile: profile.collective_faults(),
    empty="no collective that some rank did not enter, or entered unlike others",
)
