"""The report of the time by layer."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.grouped import EMPTY, grouped
from opscope.reports.report import Report

REPORT = Report(
    name="by_layer",
    order=60,
    title="Top layers",
    holds=FRAMES['totals_by("layer")'],
    frame=lambda profile: profile.totals_by("layer"),
    empty=EMPTY,
    shown=["layer", "kind", "op", "flops", "source"],
    table=grouped,
    by="layer",
    lean=True,
)
