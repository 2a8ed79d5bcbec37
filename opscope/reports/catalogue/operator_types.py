"""The report of operator types: MindSpore's operator statistics by type."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.grouped import EMPTY
from opscope.reports.report import Report

REPORT = Report(
    name="operator_types",
    order=360,
    title="Operator types",
    holds=FRAMES['operator_statistics("type")'],
    frame=lambda profile: profile.operator_statistics("type"),
    empty=EMPTY,
    shown=("share", "total", "mean", "calls", "op", "op_type", "operators", "reason"),
    lean=True,
)
