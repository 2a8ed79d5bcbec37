"""Which columns of a table suit a recording, and how they are headed in it. Without a GPU, columns of device
times hold the ops' own times, and columns of kernels are empty."""

from __future__ import annotations

import re
from typing import Final

import polars as pl

#: Columns about GPUs: without a GPU they are empty, 0, or the same word in every row.
_OF_GPUS: Final = re.compile(
    r"(kernels|copies|sets|device|stream|tc_eligible|tc_reason|tensor_core.*|launched_.*|uncaptured)"
)
#: Without a GPU, columns of device times hold elapsed times of ops. Columns of host times repeat them.
_ELAPSED: Final = {
    "device_time": "time",
    "device_self": "self time",
    "device_total": "total time",
    "device_mean": "mean time",
}
_TWICE: Final = {"host_self", "host_total", "host_mean"}


def unfit(frame: pl.DataFrame, cpu_only: bool) -> frozenset[str]:
    """Return the columns without any value; for runs on CPUs also the columns about GPUs."""
    if frame.is_empty():
        return frozenset()
    empty = {name for name in frame.columns if frame[name].null_count() == frame.height}
    if {"op", "reason"} <= set(frame.columns) and frame["reason"].null_count():
        of_ops = frame.filter(pl.col("op").is_not_null())["reason"]
        if of_ops.null_count() == len(
            of_ops
        ):  # a row without an op shows its reason in the op's place
            empty.add("reason")
    if not cpu_only:
        return frozenset(empty)
    of_gpus = {name for name in frame.columns if _OF_GPUS.fullmatch(name)}
    twice = _TWICE if "device_self" in frame.columns else set()
    twice = {*twice, "kernel_time"} if "time" in frame.columns else twice
    return frozenset(empty | of_gpus | (twice & set(frame.columns)))


def heading(column: str, cpu_only: bool) -> str | None:
    """Return the heading of a column in this run, if it differs from its name."""
    return _ELAPSED.get(column) if cpu_only else None
