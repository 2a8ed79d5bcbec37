"""What a profile lacks, and how to capture it: advice per reason why time has no op, and per table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opscope.profile import Profile

#: How to capture so that the time gets an op, by reason (core.attribution.attribute.REASONS, and the CPU's).
ADVICE: Final[Mapping[str, str]] = {
    "no launch record": (
        "The work was launched before the capture began, or the trace does not record its launch. Begin "
        "the capture at a step (opscope run --steps 3:6), or after torch.cuda.synchronize(); with "
        "torch.profiler use a schedule with warmup; with nsys trace the calls too: -t cuda,nvtx"
    ),
    "several launches share its id": (
        "The file was merged of several ranks, whose ids repeat. Give the ranks' own files, together: "
        "opscope report rank*.json"
    ),
    "the launching thread has no op ranges": (
        "A thread without ops launched these. Call opscope.init() before the program starts threads, "
        "and wrap their work in opscope.annotate; a C++ thread must push NVTX ranges itself. In phase "
        "'compile' XLA ran them to choose among kernels: leave the first steps out (opscope run --steps 3:6)"
    ),
    "launched outside any op range": (
        "The launching thread has ops, but none was open at the launch: it is custom CUDA code, or a "
        "library without annotations. Put opscope.annotate('name') around the call"
    ),
    "the trace has no op ranges": (
        "The program was traced without annotations. Run it with `opscope run`, or call "
        "opscope.init() first; with nsys trace NVTX too: -t cuda,nvtx; with torch.profiler add "
        "ProfilerActivity.CPU"
    ),
    "replayed from a CUDA graph whose capture is not in the trace": (
        "Record while the CUDA graph is captured as well, or open both traces together "
        "(opscope report REPLAY CAPTURE); with nsys: --cuda-graph-trace=node"
    ),
    "replayed from a CUDA graph that runs nodes concurrently and does not number them": (
        "The nodes of parallel branches have no fixed order. Use a profiler that numbers the nodes: PyTorch "
        "for CUDA 12 or later, or nsys with --cuda-graph-trace=node"
    ),
    "replayed from a CUDA graph that any of several captures may have made": (
        "Record with opscope.init(), whose ranges name each CUDA graph, or with nsys "
        "--cuda-graph-trace=node, and start before the graphs are captured"
    ),
    "names no op, although kernels of the trace do": (
        "The profiler wrote no op for these, and their names match no op or several. Record with "
        "opscope.init() as well: the ranges around their launches name the op"
    ),
    "inside steps, compiling a program": (
        "XLA, torch.compile, tf.function and MindSpore's graph mode compile or trace at the first call, and "
        "again for other shapes. Warm up before the capture (opscope run --steps 3:6), keep the shapes the "
        "same, or cache the compiled code: JAX_COMPILATION_CACHE_DIR, TORCHINDUCTOR_CACHE_DIR; MindSpore: "
        "set_context(enable_compile_cache=True)"
    ),
    "inside steps, outside any op": (
        "This is Python's own time (JAX's tracing of a function, the making of a model, reading data), or a "
        "library without an adapter. Name it with opscope.annotate; `opscope doctor` lists the adapters"
    ),
}
#: The same for AMD's devices, where nsys and CUDA's ways do not work.
AMD: Final[Mapping[str, str]] = {
    "no launch record": (
        "The work was launched before the capture began, or the trace does not record its launch. Begin "
        "the capture at a step (opscope run --steps 3:6), or after torch.cuda.synchronize(); with "
        "torch.profiler use a schedule with warmup; with rocprofv3 trace the calls too: --hip-trace "
        "--kernel-trace"
    ),
    "the launching thread has no op ranges": (
        "A thread without ops launched these. Call opscope.init() before the program starts threads, "
        "and wrap their work in opscope.annotate; a C++ thread must push ranges of ROCTX itself. In phase "
        "'compile' XLA ran them to choose among kernels: leave the first steps out (opscope run --steps 3:6)"
    ),
    "the trace has no op ranges": (
        "The program was traced without annotations. Record it with `opscope run`, or with torch.profiler "
        "and ProfilerActivity.CPU; with rocprofv3 trace its ranges too: --marker-trace"
    ),
    "replayed from a CUDA graph whose capture is not in the trace": (
        "Record while the HIP graph is captured as well, or open both traces together "
        "(opscope report REPLAY CAPTURE)"
    ),
    "replayed from a CUDA graph that runs nodes concurrently and does not number them": (
        "The nodes of parallel branches have no fixed order, and the profiler did not number them"
    ),
    "replayed from a CUDA graph that any of several captures may have made": (
        "Record with opscope.init(), whose ranges name each HIP graph, and start before the graphs are "
        "captured"
    ),
}
#: The content of each table, and what a profile without it cannot show.
MEANING: Final[Mapping[str, str]] = {
    "ranges": "ops, layers and steps: without them no time has an op",
    "calls": "calls of the runtime (CUDA, HIP): without them it is not known which op launched a kernel",
    "kernels": "GPU kernels: without them device time is not known",
    "memops": "copies and sets between host and device",
    "graph_nodes": "nodes of CUDA graphs: without them kernels of CUDA graphs have no op",
    "syncs": "waits for the device",
    "allocations": "device memory over time",
    "counters": "hardware counters per kernel",
    "thread_states": "when threads ran and waited: explains the time outside ops",
    "samples": "values over time, such as utilization",
    "devices": "the GPUs' limits, for efficiency",
}


def tables(profile: Profile) -> list[dict[str, object]]:
    """Return one row per table of the trace: its name, its number of rows, its use."""
    trace = profile.trace
    rows: list[dict[str, object]] = []
    from opscope.reports import vendor_words  # lazy: it loads the reports

    of = vendor_words.vendor(profile)
    for table, meaning in MEANING.items():
        count = f"{len(trace[table]):,}" if trace.has(table) else "not recorded"
        rows.append({"table": table, "rows": count, "means": vendor_words.said(meaning, of)})
    return rows


def advice(profile: Profile) -> list[dict[str, object]]:
    """Return one row per reason why time has no op: reason, kernels, time (ns), share, advice."""
    from opscope.reports import vendor_words  # lazy: it loads the reports

    of = vendor_words.vendor(profile)
    sentences = {**ADVICE, **AMD} if of == "amd" else ADVICE
    return [
        {**row, "advice": vendor_words.said(sentences[str(row["reason"])], of)}
        for row in profile.unattributed().cast({"reason": str}).to_dicts()
    ]
