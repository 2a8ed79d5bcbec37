"""The report of the time by source line."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.grouped import EMPTY, grouped
from opscope.reports.report import Report

REPORT = Report(
    name="by_source",
    order=70,
    title="Top source lines",
    holds=FRAMES['totals_by("source")'],
    frame=lambda profile: profile.totals_by("source"),
    empty=EMPTY,
    shown=["source", "kind", "op", "layer", "flops"],
    table=grouped,
    by="source",
    lean=True,
)
