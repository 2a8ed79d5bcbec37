"""The report of single operators: MindSpore's operator statistics by operator."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.grouped import EMPTY
from opscope.reports.report import Report

REPORT = Report(
    name="operator_names",
    order=362,
    title="Operators, one row per place in the program",
    holds=FRAMES['operator_statistics("operator")'],
    frame=lambda profile: profile.operator_statistics("operator"),
    empty=EMPTY,
    shown=("share", "total", "mean", "calls", "op", "direction", "layer", "operator", "reason"),
    written=False,
    lean=True,
)
