"""Memory by step: the memory in use at the end of each step, its growth, and the blocks that the step
left."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.memory.memory import of_memory
from opscope.core.analysis.memory.memory_blocks import blocks
from opscope.core.analysis.ops.ops import Ops
from opscope.core.analysis.summary.summary import ended_steps
from opscope.core.question import lacking, units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.columns import gather

_NEVER: Final = int(np.iinfo(np.int64).max)
STEPS: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "step": pl.Int64,
    "start": pl.Int64,
    "end": pl.Int64,
    "in_use": pl.Int64,
    "growth": pl.Int64,
    "peak_memory": pl.Int64,
    "reserved": pl.Int64,
    "allocated": pl.Int64,
    "released": pl.Int64,
    "kept": pl.Int64,
    "kept_blocks": pl.Int64,
}


def memory_steps(ops: Ops, changes: pl.DataFrame) -> pl.DataFrame:
    """Return one row per process, device and step that ended, by time; sizes in bytes, times in ns.

    ``in_use``: in use as the step ended; null before the device's first change. ``growth``: the increase
    since the end of the previous step. ``peak_memory``: the most bytes in use during the step, including
    those in use at its begin. ``reserved``: reserved at its end. ``kept``, ``kept_blocks``: memory that the
    step allocated and that was still in use at the end of the process's last step; null without addresses. A
    program in a steady state grows by 0 per step; memory that grows in every step and is kept may be a leak.
    """
    steps = _steps(ops)
    if changes.is_empty() or steps.is_empty():
        return pl.DataFrame(schema=STEPS)
    parts = []
    for (process, device), events in changes.group_by("process", "device", maintain_order=True):
        mine = steps.filter(pl.col("process").eq_missing(pl.lit(process, pl.Int32)))
        if len(mine):
            parts.append(_of_device(mine, events, process, device))
    if not parts:
        return pl.DataFrame(schema=STEPS)
    return pl.concat(parts).sort("process", "device", "start", "step").select(*STEPS)


def _steps(ops: Ops) -> pl.DataFrame:
    """Return process, number, start and end (ns) of the steps that ended; one row for parts of one step."""
    attribution = ops.attribution
    numbers = pl.Series(
        "step", [reading.step for reading in attribution.meaning.readings], pl.Int64
    )
    ranges = attribution.trace["ranges"].with_columns(
        gather(numbers, attribution.meaning.reading).alias("step")
    )
    return (
        ended_steps(ranges)
        .filter(pl.col("step").is_not_null())
        .group_by("process", "step")
        .agg(pl.col("start").min(), pl.col("end").max())
        .sort("start", "step")
    )


def _of_device(
    steps: pl.DataFrame, events: pl.DataFrame, process: Any, device: Any
) -> pl.DataFrame:
    time, size, total = (events[name].to_numpy() for name in ("time", "bytes", "total"))
    start, end = (steps[name].to_numpy() for name in ("start", "end"))
    first, last = (np.searchsorted(time, edge, side="left") for edge in (start, end))
    gained = np.concatenate(([0], np.cumsum(np.where(size > 0, size, 0))))
    lost = np.concatenate(([0], np.cumsum(np.where(size < 0, -size, 0))))
    before = np.concatenate(([0], total))  # in use before each event; unknown before the first
    has_event = last > 0
    # the maximum of each span of events and of the event before it: reduceat takes pairs of bounds
    ends = np.stack([np.maximum(first, 1), np.maximum(last, first) + 1], axis=1)
    highest = np.maximum.reduceat(
        np.append(before, before[-1:]), np.minimum(ends, len(before)).ravel()
    )[::2]
    blocks_of_device = blocks(events.drop("op_row"))
    kept = blocks_of_device.filter(
        pl.col("row").is_not_null() & (pl.col("end").fill_null(_NEVER) >= int(end.max()))
    )
    kept_time = kept["start"].to_numpy()
    kept_sum = np.concatenate(([0], np.cumsum(kept["bytes"].to_numpy())))
    inside = [np.searchsorted(kept_time, edge, side="left") for edge in (start, end)]
    is_told_apart = device is not None and not events["address"].has_nulls()
    in_use = pl.Series("in_use", before[last]).set(pl.Series(~has_event), None)
    reserved = events["reserved"].gather(np.maximum(last - 1, 0))
    return (
        steps.with_columns(
            pl.lit(process, pl.Int32).alias("process"),
            pl.lit(device, pl.Int32).alias("device"),
            in_use,
            in_use.diff().alias("growth"),
            pl.Series("peak_memory", highest).set(pl.Series(~has_event), None),
            reserved.set(pl.Series(~has_event), None).alias("reserved"),
            pl.Series("allocated", gained[last] - gained[first]),
            pl.Series("released", lost[last] - lost[first]),
            pl.Series("kept", kept_sum[inside[1]] - kept_sum[inside[0]]),
            pl.Series("kept_blocks", inside[1] - inside[0]),
        )
        .with_columns(pl.when(is_told_apart).then(pl.col("kept", "kept_blocks")))
        .cast(STEPS)  # type: ignore[arg-type]
    )


def answer(profile: Answers) -> pl.DataFrame:
    """The memory in use as each step ended, its growth, and the memory that the step left in use."""
    return of_memory(profile, STEPS, memory_steps)


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "memory_steps()",
            "one row per process, device and step that ended",
            columns(
                "process device step start end in_use growth peak_memory reserved "
                "allocated released kept kept_blocks",
                """
                in_use: bytes: memory in use as the step ended
                growth: bytes: in_use less that at the end of the step before
                peak_memory: bytes: most memory in use at one time of the step
                reserved: bytes: device memory that the allocator had reserved as the step ended
                allocated: bytes: allocations during the step, added up
                released: bytes: releases during the step, added up
                kept: bytes: what the step allocated and was in use as the process's last step ended; null
                    without addresses
                kept_blocks: count: blocks that the step allocated and were in use as the last step ended
                """,
            ),
        ),
    ),
    merged=lacking.MOMENTS,
    reports=(
        Report(
            name="memory_steps",
            title="Memory by step",
            empty=(
                "no step ended in this profile, or memory was not recorded (opscope run --memory "
                "records it)"
            ),
            shown=(
                "process device step in_use growth peak_memory reserved allocated released kept "
                "kept_blocks"
            ),
            forms=[Column("in_use", "at its end", units.size)],
            sums="",
        ),
    ),
)
