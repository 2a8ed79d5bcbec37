"""Recognise driver calls, streams, NVTX ranges and profiler overhead among the events of XLA's collectors.

The names are those that xla/backends/profiler/gpu gives NVIDIA's events. A launch on a host thread has the
name of its *kernel* (cupti_tracer.cc, SetKernelEventUponApiExit), copies and sets the name of their kind
(cupti_collector.cc, CreateXEvent), and calls on CUDA graphs their own name and the CUDA graph's number. So a
call is recognised by its attributes, a correlation id and a device, not by its name.
"""

from __future__ import annotations

from typing import Any, Final

import polars as pl

#: The name of a driver or runtime function.
API: Final = r"^(?:cu|hip|cuda|ncclGroup)[A-Z_]\w*$"
_GRAPH: Final = r" \(CudaGraph:\d+\)$"
_ASYNC: Final = r"\basync:1\b"
#: ``CuptiTracerEventType``, to name a call that lacks a name.
_COPIES: Final = {
    "MemcpyH2D": "cuMemcpyHtoD",
    "MemcpyD2H": "cuMemcpyDtoH",
    "MemcpyD2D": "cuMemcpyDtoD",
    "MemcpyP2P": "cuMemcpyPeer",
    "MemcpyOther": "cuMemcpy",
    "Memset": "cuMemset",
}
#: CUPTI's own work, which appears on the lines of streams and threads (getActivityOverheadKindString).
OVERHEAD: Final = ("COMPILER", "BUFFER_FLUSH", "INSTRUMENTATION", "RESOURCE", "<UNKNOWN>")
#: A line with such work has this name, even if it also has kernels (GetDeviceXLineName).
OVERHEAD_LINE: Final = "CUPTI overhead"
#: Pseudo streams of the unified memory counters (kPseudoStreamId).
UNIFIED: Final = 0x10000000
UNIFIED_COPY: Final = r"^UM_BYTES_TRANSFER_(HTOD|DTOH|DTOD)$"
#: One launch of a whole CUDA graph (AddGraphTraceActivityEvent).
WHOLE_GRAPH: Final = r"^CudaGraphExec:(\d+)$"
#: The event that XLA writes when it does not use command buffers (command_buffer_thunk.cc).
NO_COMMAND_BUFFERS: Final = "WARNING: CommandBuffer disabled when profiling"
COMMAND_BUFFERS_NOTE: Final = (
    "XLA ran its command buffers (CUDA graphs) operation by operation because its profiler was on: launches "
    "and gaps between kernels differ from those of a run without it. To keep command buffers, set "
    "XLA_FLAGS=--xla_enable_command_buffers_during_profiling=true"
)
MAYBE_NOTE: Final = (
    "XLA runs command buffers (CUDA graphs) operation by operation while its profiler is on: if this program "
    "has any, launches and gaps between kernels differ from those of a run without it. To keep command "
    "buffers, set XLA_FLAGS=--xla_enable_command_buffers_during_profiling=true"
)
_NVTX_LINE: Final = r"^Host Threads/(\d+)/NVTX$"
_NVTX: Final = r"^NVTX:(?:(TSL|XLA|NCCL|opscope\.[\w.]+):)?((?s:.*))$"
_MEMORY: Final = {"device_static": "device", "managed_static": "managed", "unknown": None}


def is_call(name: str = "name") -> pl.Expr:
    """Whether a row of a host line is a driver or runtime call (by ``correlation_id`` and ``device_id``)."""
    correlated = pl.col("correlation_id").fill_null(0) > 0
    ours = pl.col(name).str.contains(API) | pl.col("device_id").is_not_null()
    return (correlated & ours & ~pl.col(name).str.starts_with("NVTX:")).fill_null(False)


def call_name(name: str = "name", details: str = "copied") -> pl.Expr:
    """Return the function that a call used if the file has it, else the most general function it may be."""
    plain = pl.col(name).str.replace(_GRAPH, "")
    moved = plain.replace_strict(_COPIES, default=None)
    waits = pl.col(details).str.contains(_ASYNC).fill_null(False)
    return (
        pl.when(plain.str.contains(API)).then(plain)
        .when(moved.is_not_null()).then(moved + pl.when(waits).then(pl.lit("Async")).otherwise(pl.lit("")))
        .otherwise(pl.lit("cuLaunchKernel"))
    )  # fmt: skip


def context_number(column: pl.Series) -> pl.Series:
    """Convert ``$$7`` to 7; the prefix keeps the viewer from adding the numbers up."""
    if column.dtype == pl.String:
        column = column.str.extract(r"^(?:\$\$)?(\d+)$")
    number: pl.Series = column.cast(pl.Int64, strict=False)
    return number


def memory_kind(details: pl.Expr, end: str) -> pl.Expr:
    """Return the kind of memory at one ``end`` (src, dst) of a copy; null if CUPTI did not know it."""
    kind = details.str.extract(rf"kind_{end}:(\w+)").str.to_lowercase()
    return kind.replace(_MEMORY)


def nvtx_thread(name: str) -> int | None:
    """Return the thread of a line of NVTX ranges; None for any other line."""
    line_number: Any = pl.select(
        pl.lit(name).str.extract(_NVTX_LINE).cast(pl.Int64, strict=False)
    ).item()
    return line_number if isinstance(line_number, int) else None


def nvtx_domain(name: pl.Expr) -> pl.Expr:
    """Return the domain of an NVTX range if its text has one, else "", the default domain."""
    return name.str.extract(_NVTX, 1).fill_null("")


def nvtx_text(name: pl.Expr) -> pl.Expr:
    """Return the text of an NVTX range, without its domain."""
    return name.str.extract(_NVTX, 2)
