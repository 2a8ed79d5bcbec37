"""The report of how long each step waited for its input."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="input",
    order=555,
    title="Input: how long each step waited for it",
    holds=FRAMES["input_waits()"],
    frame=lambda profile: profile.input_waits(),
    empty="no step in this profile: optimizers mark steps, and so does opscope.step()",
    shown=[
        "process",
        "step",
        "duration",
        "input_wait",
        "share",
        "input_bound",
        "calls",
        "queue_depth",
        "loader",
        "reason",
    ],
    written=False,
    aliases=["input_waits"],
)
