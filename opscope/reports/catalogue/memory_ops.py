"""The report of how much memory grew and was allocated in each op, alone and with the ops inside it."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="memory_ops",
    order=455,
    title="Memory by op, with the ops inside it",
    holds=FRAMES["memory_ops()"],
    frame=lambda profile: profile.memory_ops(),
    empty="memory was not recorded (opscope run --memory records it)",
    shown=[
        "process",
        "device",
        "op",
        "calls",
        "increase",
        "self_increase",
        "allocations",
        "self_allocations",
        "allocated",
        "self_allocated",
        "reason",
    ],
)
