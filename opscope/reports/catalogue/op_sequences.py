"""The report of the sequences of kernels that each op launches."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="op_sequences",
    order=514,
    title="Sequences of kernels by op",
    holds=FRAMES["op_sequences()"],
    frame=lambda profile: profile.op_sequences(),
    empty="no op launched more than one kernel, or no kernel has an op",
    shown=["occurrences", "total", "cpu_time", "sequence_length", "op", "kernel_sequence"],
    gpu_only=True,
)
