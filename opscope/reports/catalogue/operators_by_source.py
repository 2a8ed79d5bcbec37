"""The report of operators by name and call stack."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.grouped import EMPTY
from opscope.reports.operator_columns import AFTER, BEFORE, FORMS
from opscope.reports.report import Report

REPORT = Report(
    name="operators_by_source",
    order=354,
    title="Operators, all levels of each nest, one row per call stack",
    holds=FRAMES['operators("source")'],
    frame=lambda profile: profile.operators("source"),
    empty=EMPTY,
    shown=(*BEFORE, "source", *AFTER),
    forms=FORMS,
    written=False,
)
