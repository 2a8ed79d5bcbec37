"""Why a merged job lacks a report: in the words of docs/scale.md, which a test compares."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: Reports that partials cannot make, by the reason.
REASONS: Final = {
    (
        "a row is one execution of an op; whether it lacks kernels is judged by the equal calls of all "
        "ranks, and the sums are of fractions, which depend on the order in which they are added. "
        "utilization has FLOPs against the peak by step"
    ): (
        "roofline",
        "roofline_kernel",
        "roofline_layer",
        "roofline_step",
        "counter_roofline",
    ),
    "their size is bounded by thresholds over the whole job": (
        "call_tree",
        "modules",
    ),
    "they have medians, percentiles or extremes of single events, which do not add up": (
        "operators",
        "operators_by_inputs",
        "operators_by_source",
        "memory_by_op",
        "kernel_launches",
        "launches",
        "short_kernels",
        "short_launches",
        "kernel_activities",
        "occupancy",
        "bandwidth",
        "cpu_by_op",
        "cpu_by_step",
        "cpu_utilization",
    ),
    "a row is a moment, an allocation or a sample; memory has the peaks": (
        "memory_ops",
        "memory_events",
        "memory_kinds",
        "memory_steps",
        "memory_curve",
        "device_curve",
        "queue",
        "queue_curve",
        "bandwidth_curve",
        "cpu_samples",
        "energy",
    ),
    "a path needs every event of every rank": (
        "critical_totals",
        "critical_ops",
        "critical_layers",
        "critical_kernels",
        "critical_steps",
        "critical_path",
    ),
    "they follow single events or patterns of them": (
        "slow_steps",
        "step_trace",
        "iterations",
        "sequences",
        "op_sequences",
        "fusable",
        "idle_ops",
    ),
    (
        "waits for input are found among single ranges; step_phases and the diagnosis have the input's "
        "share"
    ): (
        "input",
        "data_preparation",
    ),
    "they are of single kernels or runs": (
        "engine_layers",
        "engine_runs",
        "counters",
        "counter_work",
    ),
}
_BY_NAME: Final = {name: why for why, names in REASONS.items() for name in names}


def reason(name: str) -> str | None:
    """Return why a merged job lacks the report; None of another package's report."""
    return _BY_NAME.get(name)


def told(names: Iterable[str]) -> str:
    """Return in a line which reports a merged job lacks, and why."""
    by: dict[str, list[str]] = {}
    for name in names:
        by.setdefault(reason(name) or "it has no single events", []).append(name)
    lacking = "; ".join(f"{', '.join(some)} ({why})" for why, some in by.items())
    return f"made from partials, which lack {lacking}: the rank's own file has them"
