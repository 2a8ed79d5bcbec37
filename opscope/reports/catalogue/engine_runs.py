"""The report of the runs of TensorRT engines: latencies, percentiles, throughput."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="engine_runs",
    order=257,
    title="Runs of TensorRT engines",
    holds=FRAMES["engine_runs()"],
    frame=lambda profile: profile.engine_runs(),
    empty="no runs of a TensorRT engine (trtexec --exportTimes, its log, or TREx's profile.metadata.json)",
    shown=[
        "engine",
        "measure",
        "measured",
        "runs",
        "min",
        "mean",
        "median",
        "p90",
        "p95",
        "p99",
        "max",
        "throughput",
    ],
    aliases=("trt_runs",),
)
