"""Take the kernels of a real trace as activity that the stand-in plays, with the ops that launched them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

import opscope
from tests.cupti_stand_in.play import Activity

#: The columns of a kernel that must come back as the trace has them.
SAME = ["name", "duration", "device", "context", "stream", "grid", "block", "registers", "op"]


@dataclass
class Traced:
    """``kernels``: what the trace says of them, in the order of their launches; ``numbers`` are their
    templates, ``calls`` those of their launches. Starts are relative to the first."""

    kernels: pl.DataFrame
    activity: Activity
    numbers: list[int]
    calls: list[int]


def taken(path: Path, most: int) -> Traced:
    """Return the kernels with an op of the trace's first process, at most ``most``."""
    profile = opscope.load(path)
    calls = profile.trace["calls"].select(
        "process", "correlation", pl.col("name").cast(pl.String).alias("call")
    )
    kernels = (
        profile.kernels()
        .filter(pl.col("process") == 0, pl.col("op").is_not_null())
        .join(calls.unique(["process", "correlation"]), on=["process", "correlation"], how="left")
        .sort("call_start", "start")
        .head(most)
    )
    activity = Activity()
    numbers = []
    runtime, driver = activity.call(211), activity.call(652, kind=4)
    first = kernels["start"].min()
    for row in kernels.iter_rows(named=True):
        grid, block = row["grid"].split(","), row["block"].split(",")
        numbers.append(
            activity.kernel(
                row["name"], row["start"] - first, row["duration"],
                deviceId=row["device"], contextId=row["context"], streamId=row["stream"],
                gridX=int(grid[0]), gridY=int(grid[1]), gridZ=int(grid[2]),
                blockX=int(block[0]), blockY=int(block[1]), blockZ=int(block[2]),
                registersPerThread=row["registers"] or 0,
            )
        )  # fmt: skip
    kinds = [driver if (call or "").startswith("cu") and not call.startswith("cuda") else runtime
             for call in kernels["call"]]  # fmt: skip
    return Traced(
        kernels.with_columns(pl.col("start") - first, pl.col("end") - first),
        activity,
        numbers,
        kinds,
    )
