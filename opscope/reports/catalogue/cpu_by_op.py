"""The report of what the processors did while an op ran."""

from __future__ import annotations

from opscope.core.question import units
from opscope.core.question.layout import Column
from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="cpu_by_op",
    order=570,
    title="CPU utilization by op",
    holds=FRAMES["cpu_by_op()"],
    frame=lambda profile: profile.cpu_by_op(),
    empty=(
        "the processors were not sampled: opscope samples them from 0.2 s of a recording on, unless psutil"
        " is missing or --samples 0 says not to"
    ),
    forms=[Column("cores", "cores", units.ratio)],
)
