"""The report of what was in use as each step ended, and of its growth."""

from __future__ import annotations

from opscope.core.question import units
from opscope.core.question.layout import Column
from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="memory_steps",
    order=470,
    title="Memory by step",
    holds=FRAMES["memory_steps()"],
    frame=lambda profile: profile.memory_steps(),
    empty="no step ended in this profile, or memory was not recorded (opscope run --memory records it)",
    forms=[Column("in_use", "at its end", units.size)],
    shown=[
        "process",
        "device",
        "step",
        "in_use",
        "growth",
        "peak_memory",
        "reserved",
        "allocated",
        "released",
        "kept",
        "kept_blocks",
    ],
)
