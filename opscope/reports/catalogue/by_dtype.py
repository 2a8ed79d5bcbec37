"""The report of the time by the dtypes of inputs and outputs."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.grouped import EMPTY, grouped
from opscope.reports.report import Report

REPORT = Report(
    name="by_dtype",
    order=80,
    title="Top dtypes",
    holds=FRAMES['totals_by("dtype")'],
    frame=lambda profile: profile.totals_by("dtype"),
    empty=EMPTY,
    shown=["dtypes", "kind", "op", "layer", "flops"],
    table=grouped,
    by="dtype",
    lean=True,
)
