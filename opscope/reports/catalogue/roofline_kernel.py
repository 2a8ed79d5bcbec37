"""The roofline report by kernel: how near each kernel comes to the device's limits."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report
from opscope.reports.roofs import EMPTY, SHOWN, roofline

REPORT = Report(
    name="roofline_kernel",
    order=130,
    title="Roofline by kernel",
    holds=FRAMES['efficiency("kernel")'],
    frame=lambda profile: profile.efficiency("kernel"),
    empty=EMPTY,
    shown=("name", "op", *SHOWN),
    table=roofline,
    gpu_only=True,
)
