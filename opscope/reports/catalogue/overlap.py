"""The report of how computation, communication and copies share each device's time."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="overlap",
    order=520,
    title="Overlap of computation, communication and copies",
    holds=FRAMES["overlap()"],
    frame=lambda profile: profile.overlap(),
    empty="no kernels in this profile: no GPU was used, or kernels were not captured",
    shown=["process", "device", "running_work", "time", "busy_share", "reason"],
    gpu_only=True,
)
