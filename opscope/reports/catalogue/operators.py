"""The report of operators by name: every level of a nest of ops, with its own and its total time."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.grouped import EMPTY
from opscope.reports.layout import Column
from opscope.reports.report import Report
from opscope.reports.units import share

#: How these columns are shown; the reports by shape and by call stack show them the same way.
FORMS = (
    Column("share", "of self", share, rank=1),
    Column("tc_eligible", "TC could", rank=7),
    Column("tensor_core_self", "TC self", share, rank=6),
    Column("tensor_core_total", "TC total", share, rank=8),
)
SHOWN = (
    *("share", "device_self", "device_total", "device_mean", "calls", "op"),
    *("host_self", "host_total", "host_mean", "tc_eligible", "tensor_core_self", "tensor_core_total"),
    "reason",
)

#: What the reports by shape and by call stack show, around the column of theirs.
BEFORE, AFTER = SHOWN[:3] + SHOWN[4:6], ("host_self", "host_total", "tensor_core_self", "reason")

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
