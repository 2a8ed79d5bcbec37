"""Read tables of statistics (``results.stats.csv``, ``kernel_stats.csv``): total times of kernels. They have
no times of single kernels. If a run has nothing else, each kernel's executions are laid one after another, so
that sums and numbers are right; otherwise they check the other files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from opscope.readers.errors import BadInput
from opscope.readers.rows import TWICE, once

from .parts import Parts, kernel_names
from .table import Table

MADE_UP: Final = (
    "this file has totals and no times: executions are shown one after another from 0, so that sums and "
    "numbers are right; when they began, and what ran side by side, is not known"
)
#: Names of calls and of copies, which have such tables too.
_CALL: Final = r"^(?:__)?(?:hip|hsa|roctx|rccl|nccl|rocdec|rocjpeg|ompt)[A-Z_]"
_COPY: Final = r"^(?:MEMORY_COPY_|Copy(?:Host|Device)|Memcpy|FillBuffer)"
_OTHER: Final = (
    r"^(?:KERNEL_DISPATCH|HIP_API|HSA_API|MARKER_API|MEMORY_COPY|RCCL_API|MEMORY_ALLOCATION_?\w*|"
    r"SCRATCH_MEMORY)$"
)
#: The most executions that are placed; beyond that, one row represents all executions of a kernel.
_MOST: Final = 2_000_000


def totals(path: Path) -> pl.DataFrame:
    """Return name, calls and time (ns) of each row. Raises BadInput."""
    table = Table(path)
    return pl.DataFrame(
        {
            "name": table.text("name"),
            "calls": table.whole("calls"),
            "time": table.whole("totaldurationns"),
        }
    ).filter(
        pl.col("name").is_not_null()
        & pl.col("calls").is_between(1, 1 << 40)
        & pl.col("time").is_between(0, 1 << 52)
    )


def read(path: Path, parts: Parts) -> None:
    """Add the executions that the statistics are of. Raises BadInput if they are not of kernels."""
    parts.tool = "rocprof"
    rows, again = once(totals(path))
    if again:
        parts.note("warning", TWICE, again)
    name = pl.col("name")
    kernels = rows.filter(
        ~(name.str.contains(_CALL) | name.str.contains(_COPY) | name.str.contains(_OTHER))
    )
    if not len(kernels):
        raise BadInput(
            path,
            "totals of calls or copies, not of kernels: open the table of kernels that lies beside this file",
        )
    if len(kernels) < len(rows):
        parts.note("info", "totals of calls and copies, left out", len(rows) - len(kernels))
    calls, time = kernels["calls"].to_numpy(), kernels["time"].to_numpy()
    each = calls if int(calls.sum()) <= _MOST else np.ones(len(calls), np.int64)
    row = np.repeat(np.arange(len(calls)), each)
    index = np.arange(len(row)) - np.repeat(np.cumsum(each) - each, each)
    # the first ones are one ns longer, so that the sum is exact
    lasted = time[row] // each[row] + (index < time[row] % each[row])
    end = np.cumsum(lasted)
    parts.add(
        "dispatches",
        pl.DataFrame(
            {
                "device": pl.zeros(len(row), pl.Int64, eager=True),
                "queue": pl.zeros(len(row), pl.Int64, eager=True),
                "start": end - lasted,
                "end": end,
                "name": kernels["name"].gather(row),
            }
        ),
    )
    parts.origin["times"] = "made up"
    parts.note("warning", MADE_UP, len(kernels))


def differing(parts: Parts, path: Path) -> int:
    """Return how many kernels of the tool's own statistics were not read with the same number and time."""
    frames = parts.frames.get("dispatches", [])
    if not frames:
        return 0
    read_names = pl.concat([frame.select("name", "start", "end") for frame in frames])
    ours = (
        pl.DataFrame(
            {
                "name": kernel_names(read_names["name"]).cast(pl.String),
                "time": read_names["end"] - read_names["start"],
            }
        )
        .group_by("name")
        .agg(pl.len().cast(pl.Int64).alias("ran"), pl.col("time").sum().alias("took"))
    )
    theirs = totals(path)
    theirs = theirs.with_columns(kernel_names(theirs["name"]).cast(pl.String).alias("name"))
    joined = theirs.join(ours, on="name", how="inner")
    return len(
        joined.filter((pl.col("ran") != pl.col("calls")) | (pl.col("took") != pl.col("time")))
    )
