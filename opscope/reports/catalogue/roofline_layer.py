"""The roofline report by layer: how near each layer comes to the device's limits."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report
from opscope.reports.roofs import EMPTY, SHOWN, roofline

REPORT = Report(
    name="roofline_layer",
    order=140,
    title="Roofline by layer",
    holds=FRAMES['efficiency("layer")'],
    frame=lambda profile: profile.efficiency("layer"),
    empty=EMPTY,
    shown=("layer", *SHOWN),
    table=roofline,
)
