"""The report of operators by name: every level of a nest of ops, with its own and its total time."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.grouped import EMPTY
from opscope.reports.operator_columns import FORMS, SHOWN
from opscope.reports.report import Report

REPORT = Report(
    name="operators",
    order=350,
    title="Operators, all levels of each nest",
    holds=FRAMES["operators()"],
    frame=lambda profile: profile.operators(),
    empty=EMPTY,
    shown=SHOWN,
    forms=FORMS,
    aliases=("operator", "key_averages"),
)
