"""The report of what the processors did during each step."""

from __future__ import annotations

from opscope.core.question import units
from opscope.core.question.layout import Column
from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="cpu_by_step",
    order=568,
    title="CPU utilization by step",
    holds=FRAMES["cpu_by_step()"],
    frame=lambda profile: profile.cpu_by_step(),
    empty="no step in this profile: optimizers mark steps, and so does opscope.step()",
    shown=["process", "step", "duration", "samples", "machine", "cores", "child_cores", "reason"],
    written=False,
    forms=[
        Column("cores", "cores", units.ratio),
        Column("child_cores", "child cores", units.ratio),
    ],
)
