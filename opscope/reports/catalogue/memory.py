"""The report of the most memory in use, by process and device."""

from __future__ import annotations

from opscope.core.question import units
from opscope.core.question.layout import Column
from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="memory",
    order=180,
    title="Memory",
    holds=FRAMES["memory()"],
    frame=lambda profile: profile.memory(),
    empty="memory was not recorded (opscope run --memory records it)",
    forms=[Column("peak_unused", "unused at the peak", units.size)],
    shown=[
        "process",
        "device",
        "peak_memory",
        "reserved",
        "peak_unused",
        "in_use",
        "allocated",
        "released",
        "allocations",
        "unpaired",
    ],
)
