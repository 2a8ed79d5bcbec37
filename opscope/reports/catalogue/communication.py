"""How much of the time ranks exchange messages, and how much of that is hidden."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="communication",
    order=200,
    title="Communication",
    holds=FRAMES["communication()"],
    frame=lambda profile: profile.communication(),
    empty="neither collectives nor kernels in this profile",
)
