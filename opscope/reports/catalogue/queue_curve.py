"""The report of the length of each stream's queue over time."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="queue_curve",
    order=498,
    title="Launch queues over time",
    holds=FRAMES["queue_curve()"],
    frame=lambda profile: profile.queue_curve(),
    empty="no launch records: no GPU was used, or launches were not captured",
    shown=["process", "device", "stream", "time", "queued"],
    written=False,
    gpu_only=True,
)
