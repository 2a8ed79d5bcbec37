"""The report of MindSpore's step trace: iteration interval, forward and backward, tail."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="step_trace",
    order=320,
    title="Step trace",
    holds=FRAMES["step_trace()"],
    frame=lambda profile: profile.step_trace(),
    empty="no steps in this profile: opscope.step() or a callback marks them",
    shown=[
        "process",
        "step",
        "time",
        "iteration_interval",
        "forward_backward",
        "step_tail",
        "seen_on",
        "reason",
    ],
    written=False,
)
