"""The report of the ops that had allocated the memory in use at the peak."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="memory_by_op",
    order=190,
    title="Memory in use at the peak, by op",
    holds=FRAMES["memory_by_op()"],
    frame=lambda profile: profile.memory_by_op(),
    empty="memory was not recorded (opscope run --memory records it)",
    shown=[
        "process",
        "device",
        "share",
        "at_peak",
        "op",
        "allocations",
        "direction",
        "layer",
        "reason",
        "source",
    ],
)
