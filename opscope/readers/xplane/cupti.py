"""What XLA's collectors of device events call driver calls, streams, NVTX ranges, own work.

Of NVIDIA's events the names are those of xla/backends/profiler/gpu: a launch on a host thread has
the name of its *kernel* (cupti_tracer.cc, SetKernelEventUponApiExit), copies and sets that of their
kind (cupti_collector.cc, CreateXEvent), calls on CUDA graphs their own and the graph's number. So a
call is told by what it carries, a correlation id and a device, not by its name.
"""

from __future__ import annotations

from typing import Any, Final

import polars as pl

#: A driver's or runtime's function, as it is spelled.
API: Final = r"^(?:cu|hip|cuda|ncclGroup)[A-Z_]\w*$"
_GRAPH: Final = r" \(CudaGraph:\d+\)$"
_ASYNC: Final = r"\basync:1\b"
#: ``CuptiTracerEventType``: what a call that has no name of its own is named after.
_COPIES: Final = {
    "MemcpyH2D": "cuMemcpyHtoD",
    "MemcpyD2H": "cuMemcpyDtoH",
    "MemcpyD2D": "cuMemcpyDtoD",
    "MemcpyP2P": "cuMemcpyPeer",
    "MemcpyOther": "cuMemcpy",
    "Memset": "cuMemset",
}
#: CUPTI's own work, which stands on the lines of streams and threads (getActivityOverheadKindString).
OVERHEAD: Final = ("COMPILER", "BUFFER_FLUSH", "INSTRUMENTATION", "RESOURCE", "<UNKNOWN>")
#: The name of any line on which such work stands, kernels beside it or not (GetDeviceXLineName).
OVERHEAD_LINE: Final = "CUPTI overhead"
#: ``kThreadIdDerivedMin``: lines numbered from here on are no streams.
DERIVED: Final = 0xDEADBEEF
#: Pseudo streams of unified memory's counters (kPseudoStreamId).
UNIFIED: Final = 0x10000000
UNIFIED_COPY: Final = r"^UM_BYTES_TRANSFER_(HTOD|DTOH|DTOD)$"
#: One CUDA graph as a whole (AddGraphTraceActivityEvent).
WHOLE_GRAPH: Final = r"^CudaGraphExec:(\d+)$"
#: What XLA tells when it does without command buffers (command_buffer_thunk.cc).
NO_COMMAND_BUFFERS: Final = "WARNING: CommandBuffer disabled when profiling"
COMMAND_BUFFERS_NOTE: Final = (
    "XLA ran its command buffers (CUDA graphs) operation by operation, as it does while its profiler "
    "is on: launches and gaps between kernels are not those of a plain run. "
    "XLA_FLAGS=--xla_enable_command_buffers_during_profiling=true keeps them"
)
MAYBE_NOTE: Final = (
    "while XLA's profiler is on, command buffers (CUDA graphs) run operation by operation: if this "
    "program has any, launches and gaps between kernels are not those of a plain run. "
    "XLA_FLAGS=--xla_enable_command_buffers_during_profiling=true keeps them"
)
_NVTX_LINE: Final = r"^Host Threads/(\d+)/NVTX$"
_NVTX: Final = r"^NVTX:(?:(TSL|XLA|NCCL|opscope\.[\w.]+):)?((?s:.*))$"
_MEMORY: Final = {"device_static": "device", "managed_static": "managed", "unknown": None}


def is_call(name: str = "name") -> pl.Expr:
    """Whether a row of a host line (``correlation_id``, ``device_id``) is a call to the driver or runtime."""
    asked = pl.col("correlation_id").fill_null(0) > 0
    ours = pl.col(name).str.contains(API) | pl.col("device_id").is_not_null()
    return (asked & ours & ~pl.col(name).str.starts_with("NVTX:")).fill_null(False)


def call_name(name: str = "name", details: str = "copied") -> pl.Expr:
    """The function that a call is of, where the file tells, else the least that it is."""
    plain = pl.col(name).str.replace(_GRAPH, "")
    moved = plain.replace_strict(_COPIES, default=None)
    waits = pl.col(details).str.contains(_ASYNC).fill_null(False)
    return (
        pl.when(plain.str.contains(API)).then(plain)
        .when(moved.is_not_null()).then(moved + pl.when(waits).then(pl.lit("Async")).otherwise(pl.lit("")))
        .otherwise(pl.lit("cuLaunchKernel"))
    )  # fmt: skip


def context_number(column: pl.Series) -> pl.Series:
    """``$$7``, which keeps the viewer from adding up numbers, as 7."""
    if column.dtype == pl.String:
        column = column.str.extract(r"^(?:\$\$)?(\d+)$")
    number: pl.Series = column.cast(pl.Int64, strict=False)
    return number


def memory_kind(details: pl.Expr, end: str) -> pl.Expr:
    """The kind of memory at one ``end`` (src, dst) of a copy; null where CUPTI did not know."""
    told = details.str.extract(rf"kind_{end}:(\w+)").str.to_lowercase()
    return told.replace(_MEMORY)


def nvtx_thread(name: str) -> int | None:
    """The thread that a line of NVTX ranges is of; None for another line."""
    found: Any = pl.select(pl.lit(name).str.extract(_NVTX_LINE).cast(pl.Int64, strict=False)).item()
    return found if isinstance(found, int) else None


def nvtx_domain(name: pl.Expr) -> pl.Expr:
    """The domain of an NVTX range, where its text says so; of others an empty one, the default."""
    return name.str.extract(_NVTX, 1).fill_null("")


def nvtx_text(name: pl.Expr) -> pl.Expr:
    """The text of an NVTX range."""
    return name.str.extract(_NVTX, 2)
