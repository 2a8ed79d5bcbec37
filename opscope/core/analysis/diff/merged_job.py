"""A merged job reduced for a difference: its steps by part, without ops."""

from __future__ import annotations

import numpy as np
import polars as pl

from opscope.core.analysis.diff.about import about
from opscope.core.analysis.diff.light import KEYS
from opscope.core.analysis.diff.rankwise import counted, ranked
from opscope.core.analysis.diff.reduced import (
    KERNELS,
    NOTHING,
    PART_NAMES,
    RUN,
    SPENT,
    STEP,
    UNITS,
    WHOLE,
    WORK,
    Reduced,
    waiting_in,
)
from opscope.core.analysis.diff.samples import sampled
from opscope.core.analysis.diff.whole_job import Totals
from opscope.core.analysis.host.input_waits import WAITS
from opscope.core.analysis.steps.step_times import OTHER, PARTS
from opscope.core.tables.intervals import NONE
from opscope.core.tables.narrow import Pieces
from opscope.core.tables.trace import Trace


def reduce_merged(
    trace: Trace,
    table: pl.DataFrame,
    exchanged: Pieces,
    bounds: pl.DataFrame,
    totals: Totals,
    how: str,
    on_gpu: bool,
) -> Reduced:
    """Return what a difference needs of a merged job.

    ``table`` is ``steps.step_table``, ``bounds`` when each process began and ended. With WHOLE a process is
    one unit; if the job has steps, its parts are unknown, because parts are recorded per step.
    """
    steps = table.filter(pl.col("step").is_not_null())
    is_run = how == WHOLE or steps.is_empty()
    if not is_run:
        rows = counted(steps)
        left_out = len(steps) - len(rows)
    elif steps.is_empty():
        rows, left_out = table, 0
    else:
        spans = bounds.filter(pl.col("end") > pl.col("start"))
        rows = spans.select(
            "process", pl.lit(None, pl.Int64).alias("step"), "start", "end",
            *(pl.lit(None, pl.Int64).alias(name) for name in PARTS),
        )  # fmt: skip
        left_out = 0
    units = sampled(rows.select(*UNITS).cast(dict(UNITS.items())))
    has_part = tuple(bool(rows[name].is_not_null().any()) for name in PARTS)
    nothing = pl.DataFrame(schema=KEYS)
    unit = RUN if is_run else STEP
    return Reduced(
        unit,
        units,
        left_out,
        NOTHING if units.is_empty() else None,
        nothing,
        _spend(rows),
        pl.DataFrame(schema=WORK),
        pl.DataFrame(schema=KERNELS),
        (*has_part, True),
        about(
            trace,
            unit,
            units,
            left_out,
            pl.DataFrame(schema=WAITS),
            on_gpu,
        ),
        tuple(trace["processes"]["framework"].drop_nulls().unique().sort().to_list()),
        PART_NAMES,
        has_ops=False,
        waiting=waiting_in(trace, units, exchanged),
        ranks=tuple(trace["processes"].select("process", "rank").drop_nulls().unique().rows()),
        ranked=ranked(table, exchanged),
        totals=totals,
        merged=True,
    )


def _spend(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the time of each unit and part; the last part is the rest, so the parts add up to the unit."""
    parts = rows.select(pl.col(name).fill_null(0) for name in PARTS)
    lengths = rows["end"] - rows["start"]
    rest = lengths - parts.select(pl.sum_horizontal(PARTS)).to_series()
    return pl.concat(
        pl.DataFrame(
            {
                "unit": np.arange(len(rows)),
                "part": np.full(len(rows), index),
                "key": np.full(len(rows), NONE),
                "time": time,
            },
            schema=SPENT,
        )
        for index, time in enumerate([*(parts[name] for name in PARTS), rest.rename(OTHER)])
    )
