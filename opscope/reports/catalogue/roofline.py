"""The roofline report by op: how near each op comes to the device's limits."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report
from opscope.reports.roofs import EMPTY, SHOWN, roofline

REPORT = Report(
    name="roofline",
    order=120,
    title="Roofline by op",
    holds=FRAMES['efficiency("op")'],
    frame=lambda profile: profile.efficiency("op"),
    empty=EMPTY,
    shown=("op", *SHOWN),
    table=roofline,
    aliases=("efficiency",),
)
