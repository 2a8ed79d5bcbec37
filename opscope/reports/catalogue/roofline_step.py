"""The roofline report by step: how near each step comes to the device's limits."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report
from opscope.reports.roofs import EMPTY, SHOWN, roofline

REPORT = Report(
    name="roofline_step",
    order=150,
    title="Roofline by step",
    holds=FRAMES['efficiency("step")'],
    frame=lambda profile: profile.efficiency("step"),
    empty=EMPTY,
    shown=("step", *SHOWN),
    table=roofline,
)
