"""What a profile lacks and how to capture it: for each reason why time has no op, and each table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opscope.profile import Profile

#: How to capture so that a gap closes, by the reason (core.attribution.attribute.REASONS, and the CPU's own).
ADVICE: Final[Mapping[str, str]] = {
    "no launch record": (
        "Work launched before the capture began, or whose CUDA calls were not traced. Begin the "
        "capture at a step (opscope run --steps 3:6), or after torch.cuda.synchronize(); with "
        "torch.profiler use a schedule with warmup; with nsys trace the calls too: -t cuda,nvtx"
    ),
    "the launching thread has no op ranges": (
        "A thread of its own launched these. Call opscope.init() before threads are started, and "
        "wrap what they do in opscope.annotate; a C++ thread must push NVTX ranges itself"
    ),
    "launched outside any op range": (
        "The launching thread has ops, but none was open: custom CUDA code, or a library that "
        "annotates nothing. Put opscope.annotate('name') around the call"
    ),
    "the trace has no op ranges": (
        "The program was traced without annotations. Run it by `opscope run`, or call "
        "opscope.init() first; under nsys trace NVTX too: -t cuda,nvtx; with torch.profiler add "
        "ProfilerActivity.CPU"
    ),
    "replayed from a CUDA graph whose capture is not in the trace": (
        "Record while the graph is captured as well, or open both traces together "
        "(opscope report REPLAY CAPTURE); with nsys: --cuda-graph-trace=node"
    ),
    "replayed from a CUDA graph that runs nodes concurrently and does not number them": (
        "The order of parallel branches tells nothing. A profiler that numbers nodes does: PyTorch for "
        "CUDA 12 or later, or nsys with --cuda-graph-trace=node"
    ),
    "replayed from a CUDA graph that any of several captures may have made": (
        "Record with opscope.init(), whose ranges name each graph, or with nsys "
        "--cuda-graph-trace=node, from before the captures"
    ),
    "names no op, although kernels of the trace do": (
        "The profiler wrote no op beside these, and their names occur in no op or in several. Record "
        "with opscope.init() as well, so that the ranges around their launches tell"
    ),
    "inside steps, compiling a program": (
        "XLA and torch.compile compile at the first call, and again for other shapes. Warm up before "
        "the capture (opscope run --steps 3:6), keep shapes alike, or keep what was compiled: "
        "JAX_COMPILATION_CACHE_DIR, TORCHINDUCTOR_CACHE_DIR"
    ),
    "inside steps, outside any op": (
        "Python's own time, or a library without an adapter: opscope.annotate names it; "
        "`opscope doctor` lists the adapters"
    ),
}
#: What a person cannot learn from a profile without the table.
MEANING: Final[Mapping[str, str]] = {
    "ranges": "ops, layers and steps: without them nothing says what the time was for",
    "calls": "CUDA API calls: without them kernels are not tied to what launched them",
    "kernels": "GPU kernels: without them device time is not known",
    "memops": "copies and sets between host and device",
    "graph_nodes": "nodes of CUDA graphs: without them their kernels have no op",
    "syncs": "waits for the device",
    "allocations": "device memory over time",
    "counters": "hardware counters per kernel",
    "thread_states": "when threads ran and waited: what the time outside ops is",
    "samples": "values over time, such as utilization",
    "devices": "the GPUs' limits, for efficiency",
}


def tables(profile: Profile) -> list[dict[str, object]]:
    """One row per trace table: table, rows, and what it is good for."""
    trace = profile.trace
    rows: list[dict[str, object]] = []
    for table, meaning in MEANING.items():
        count = f"{len(trace[table]):,}" if trace.has(table) else "not recorded"
        rows.append({"table": table, "rows": count, "means": meaning})
    return rows


def advice(profile: Profile) -> list[dict[str, object]]:
    """One row per reason for which time has no op: reason, kernels, time (ns), share, how to close it."""
    return [
        {**row, "advice": ADVICE[str(row["reason"])]}
        for row in profile.unattributed().cast({"reason": str}).to_dicts()
    ]
