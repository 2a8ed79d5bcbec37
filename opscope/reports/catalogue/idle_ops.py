"""The report of the ops in which the host kept a device waiting."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="idle_ops",
    order=486,
    title="What the host did while a device waited for it",
    holds=FRAMES["idle_ops()"],
    frame=lambda profile: profile.idle_ops(),
    empty="no device waited for the host, or launches were not recorded (--reports idle)",
    shown=[
        "wait_share",
        "wait_time",
        "waits",
        "launching_time",
        "in_calls",
        "op",
        "direction",
        "call",
        "range",
        "phase",
        "layer",
        "source",
        "reason",
    ],
    gpu_only=True,
)
