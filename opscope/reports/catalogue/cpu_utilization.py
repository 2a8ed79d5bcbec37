"""The report of what the processors of the machine and of each process did."""

from __future__ import annotations

from opscope.core.question import units
from opscope.core.question.layout import Column
from opscope.frames import FRAMES
from opscope.reports.report import Report

_EMPTY = (
    "the processors were not sampled: opscope samples them from 0.2 s of a recording on, unless psutil"
    " is missing or --samples 0 says not to"
)
REPORT = Report(
    name="cpu_utilization",
    order=560,
    title="CPU utilization",
    holds=FRAMES["cpu_utilization()"],
    frame=lambda profile: profile.cpu_utilization(),
    empty=_EMPTY,
    forms=[
        Column("cores", "cores", units.ratio),
        Column("cores_max", "cores max", units.ratio),
        Column("child_cores", "child cores", units.ratio),
    ],
    aliases=["cpu"],
)
