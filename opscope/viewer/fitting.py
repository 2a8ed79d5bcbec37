"""Which columns of a table suit a recording, and how they are headed in it. Without a GPU, columns of device
times hold the ops' own times, and columns of kernels are empty."""

from __future__ import annotations

import re
from typing import Final

import polars as pl

from opscope.core.vendors import said

#: Columns about GPU work: in a run without a GPU they are empty, 0 or always the same word.
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
#: NVIDIA's terms in names of columns, in the form in which other vendors' words are looked up.
_NVIDIAS: Final = (
    ("tensor core", "Tensor Core"),
    ("tc ", "TC "),
    ("sm efficiency", "SM efficiency"),
    ("blocks per sm", "blocks/SM"),
)
_TWICE: Final = {"host_self", "host_total", "host_mean"}

#: Parts of a step: a part in which no step spent any time is left out.
_PART: Final = re.compile(r"[a-z]+_part")


def _nothing(column: pl.Series) -> bool:
    return column.dtype.is_numeric() and column.null_count() == 0 and bool((column == 0).all())


def unfit(frame: pl.DataFrame, cpu_only: bool) -> frozenset[str]:
    """Return the columns in which no row has a value of its own, parts of steps that took no time, and, of
    a run on CPUs alone, those of GPUs."""
    if frame.is_empty():
        return frozenset()
    empty = {name for name in frame.columns if frame[name].null_count() == frame.height}
    if "efficiency" in empty:
        empty.add("rated")  # without a roof, always 0
    empty |= {name for name in frame.columns if _PART.fullmatch(name) and _nothing(frame[name])}
    if {"op", "reason"} <= set(frame.columns) and frame["reason"].null_count():
        of_ops = frame.filter(pl.col("op").is_not_null())["reason"]
        # a row without an op shows its reason in the op's place
        if of_ops.null_count() == len(of_ops):
            empty.add("reason")
    if not cpu_only:
        return frozenset(empty)
    of_gpus = {name for name in frame.columns if _OF_GPUS.fullmatch(name)}
    twice = _TWICE if "device_self" in frame.columns else set()
    twice = {*twice, "kernel_time"} if "time" in frame.columns else twice
    return frozenset(empty | of_gpus | (twice & set(frame.columns)))


def heading(column: str, cpu_only: bool, vendor: str | None = None) -> str | None:
    """Return a column's heading for this run and vendor, if that is not its name."""
    if cpu_only:
        return _ELAPSED.get(column)
    ours = column.replace("_", " ")
    for name, words in _NVIDIAS:
        ours = ours.replace(name, words)
    theirs = said(ours, vendor)
    return None if theirs == ours else theirs
