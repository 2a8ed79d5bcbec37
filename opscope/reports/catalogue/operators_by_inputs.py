"""The report of operators by name and shape."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.grouped import EMPTY
from opscope.reports.operator_columns import AFTER, BEFORE, FORMS
from opscope.reports.report import Report

REPORT = Report(
    name="operators_by_inputs",
    order=352,
    title="Operators, all levels of each nest, one row per shape",
    holds=FRAMES['operators("inputs")'],
    frame=lambda profile: profile.operators("inputs"),
    empty=EMPTY,
    shown=(*BEFORE, "inputs", *AFTER),
    forms=FORMS,
    written=False,
)
