"""The report of the processors over time."""

from __future__ import annotations

from opscope.core.question import units
from opscope.core.question.layout import Column
from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="cpu_samples",
    order=565,
    title="CPU utilization over time",
    holds=FRAMES["cpu_samples()"],
    frame=lambda profile: profile.cpu_samples(),
    empty=(
        "the processors were not sampled: opscope samples them from 0.2 s of a recording on, unless psutil"
        " is missing or --samples 0 says not to"
    ),
    written=False,
    forms=[Column("cores", "cores", units.ratio)],
)
