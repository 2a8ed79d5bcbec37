"""The report of the time by op, all shapes of each op together."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.grouped import EMPTY, grouped
from opscope.reports.report import Report

REPORT = Report(
    name="by_op",
    order=50,
    title="Top ops, all shapes of each together",
    holds=FRAMES['totals_by("op")'],
    frame=lambda profile: profile.totals_by("op"),
    empty=EMPTY,
    shown=["op", "kind", "inputs", "layer", "flops", "source"],
    table=grouped,
    first=True,
    by="op",
    lean=True,
)
