"""The calls that take memory from the driver or give it back, in steps after the first ones."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.advice.finding import Answers
from opscope.core.advice.marked_steps import marked_steps
from opscope.core.analysis.steps.step_times import processes_of, step_at
from opscope.core.tables.columns import at, matching

#: Calls of CUDA and HIP that allocate and release device memory, not those of a pool on a stream.
CALLS: Final = r"(?i)^(cuda|hip)(Malloc|Free)(_v\d+)?$|^cuMem(Alloc|Free)(_v\d+)?$"
#: Number of later steps that must have such calls, for the calls to count as repeated.
LEAST_STEPS: Final = 2


def repeated(answers: Answers) -> pl.DataFrame:
    """Return process, row (of ``calls``), name, step, duration (ns) of these calls in later steps.

    Empty unless at least two later steps of a process have such calls. Later steps are those after the
    warm-up; after the first step where the warm-up is not known.
    """
    calls = answers.trace["calls"]
    rows = np.flatnonzero(matching(calls["name"], CALLS))
    schema = {"process": pl.Int32, "row": pl.Int64, "name": pl.String, "step": pl.Int64,
              "duration": pl.Int64}  # fmt: skip
    nothing = pl.DataFrame(schema=schema)
    if not len(rows):
        return nothing
    steps = marked_steps(answers).sort("process", "start")
    if steps.is_empty():
        return nothing
    first = pl.int_range(pl.len()).over("process") == 0
    later = steps.filter(~pl.col("warm_up").fill_null(first))
    repeated_calls = calls[rows].select(
        "process",
        pl.Series("row", rows, pl.Int64),
        pl.col("name").cast(pl.String),
        "start",
        (pl.col("end") - pl.col("start")).alias("duration"),
    )
    row = step_at(
        later, processes_of(repeated_calls["process"]), repeated_calls["start"].to_numpy()
    )
    inside = repeated_calls.with_columns(
        pl.Series("step", at(later["step"].to_numpy(), np.asarray(row, np.int64)), pl.Int64)
    ).filter(pl.Series(np.asarray(row) >= 0, dtype=pl.Boolean))
    often = inside.filter(pl.col("step").n_unique().over("process") >= LEAST_STEPS)
    return often.select(pl.col(name).cast(kind) for name, kind in schema.items())


def said(calls: pl.DataFrame) -> str:
    """Return the calls in words: ``cudaMalloc: 12 calls in 4 steps``."""
    each = (
        calls.group_by("name")
        .agg(pl.len(), pl.col("step").n_unique().alias("steps"))
        .sort("len", "name", descending=[True, False])
    )
    return "; ".join(
        f"{name}: {count:,} calls in {steps:,} steps" for name, count, steps in each.rows()
    )
