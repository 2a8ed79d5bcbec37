"""Communication: how much of the time it takes, and how much of it computation hides."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.intervals import Ints, clip, intersect, merge
from opscope.core.trace import Trace

_COMMUNICATION: Final = r"(?i)^nccl|ncclKernel|ncclDevKernel|rccl|^void nccl|msccl|nvshmem"


def is_communication(name: str = "name") -> pl.Expr:
    """Whether a kernel, by its name, is a collective's or a point-to-point transfer's."""
    return pl.col(name).cast(pl.String).str.contains(_COMMUNICATION)


def communication(trace: Trace) -> pl.DataFrame:
    """One row per process with kernels: how communication and computation share the time.

    ``communication_share``: union(communication kernels inside the window) / window, the window
    being [first step start, last step end], else that of all kernels. ``overlap``: the part of
    union(communication kernels) during which another kernel runs, over the whole trace; null
    without communication. Times in ns. Definitions as Holistic Trace Analysis gives them, without
    its trimming of steps.
    """
    rows = []
    kernels = trace["kernels"].with_columns(is_communication().alias("communicates"))
    steps = trace["ranges"].filter(pl.col("category") == "step")
    for (process,), part in kernels.group_by("process", maintain_order=True):
        ours = part["communicates"].fill_null(False)
        comm = _union(part.filter(ours))
        other = _union(part.filter(~ours))
        mine = steps.filter(pl.col("process") == process)
        window = mine if len(mine) else part
        low, high = int(window["start"].min()), int(window["end"].max())  # type: ignore[arg-type]
        inside = _length(clip(comm, low, high))
        both = _length(intersect(comm, other))
        rows.append(
            {
                "process": process,
                "window": high - low,
                "communication_time": _length(comm),
                "communication_share": inside / (high - low) if high > low else None,
                "computation_time": _length(other),
                "overlap_time": both,
                "overlap": both / _length(comm) if len(comm[0]) else None,
            }
        )
    return pl.DataFrame(
        rows,
        schema={
            "process": pl.Int32,
            "window": pl.Int64,
            "communication_time": pl.Int64,
            "communication_share": pl.Float64,
            "computation_time": pl.Int64,
            "overlap_time": pl.Int64,
            "overlap": pl.Float64,
        },
    )


def _union(frame: pl.DataFrame) -> tuple[Ints, Ints]:
    return merge(frame["start"].to_numpy(), frame["end"].to_numpy())


def _length(spans: tuple[Ints, Ints]) -> int:
    return int((spans[1] - spans[0]).sum())
