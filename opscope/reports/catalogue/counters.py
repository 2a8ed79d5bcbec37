"""Hardware counters by kernel and op."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.counters import EMPTY, FORMS
from opscope.reports.report import Report

REPORT = Report(
    name="counters",
    order=580,
    title="Hardware counters",
    holds=FRAMES["counter_totals()"],
    frame=lambda profile: profile.counter_totals(),
    empty=EMPTY,
    forms=FORMS,
    aliases=("counter_totals",),
    gpu_only=True,
)
