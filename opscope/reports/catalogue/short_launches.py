"""The report of kernels that ran shorter than the call that launched them."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="short_launches",
    order=492,
    title="Kernels shorter than their launch",
    holds=FRAMES["short_launches()"],
    frame=lambda profile: profile.short_launches(),
    empty="none: every kernel ran longer than its launch, or launches were not captured",
    shown=[
        "launching_time",
        "shorter_time",
        "short_launches",
        "shorter_share",
        "launches",
        "name",
        "op",
    ],
    gpu_only=True,
)
