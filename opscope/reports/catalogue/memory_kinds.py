"""The report of what was in use at the peak, by kind and layer."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="memory_kinds",
    order=465,
    title="Memory in use at the peak, by kind and layer",
    holds=FRAMES["memory_kinds()"],
    frame=lambda profile: profile.memory_kinds(),
    empty="memory was not recorded (opscope run --memory records it)",
    shown=["process", "device", "share", "at_peak", "kind", "layer", "held_blocks", "reason"],
)
