"""How each machine's clock was put on the first one's."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="clocks",
    order=240,
    title="Clocks",
    holds=FRAMES["clocks()"],
    frame=lambda profile: profile.clocks(),
    empty="this format does not tell",
)
