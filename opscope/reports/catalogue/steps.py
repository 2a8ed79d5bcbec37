"""The report of steps: the wall time of each by what the process did, and by phase."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="steps",
    order=300,
    title="Steps",
    holds=FRAMES["steps()"],
    frame=lambda profile: profile.steps(),
    empty="no steps, and nothing of the host: opscope.step() or a callback marks steps",
    shown=[
        "process",
        "step",
        "time",
        "communication_part",
        "kernel_part",
        "copy_part",
        "runtime_part",
        "loader_part",
        "op_part",
        "other_part",
        "forward_phase",
        "backward_phase",
        "optimizer_phase",
        "slow",
    ],
    written=False,
)
