"""The report of sequences of kernels that run again and again."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="sequences",
    order=510,
    title="Frequent sequences of kernels",
    holds=FRAMES["sequences()"],
    frame=lambda profile: profile.sequences(),
    empty="no sequence of kernels ran twice, or no kernels were captured",
    shown=[
        "share",
        "total",
        "occurrences",
        "sequence_length",
        "between_time",
        "kernel_sequence",
        "op",
        "direction",
    ],
    gpu_only=True,
)
