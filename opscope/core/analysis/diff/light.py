"""A light-mode profile reduced for a difference: every step, or every stretch of steps, by phase."""

from __future__ import annotations

import numpy as np
import polars as pl

from opscope.core.analysis.diff.about import about
from opscope.core.analysis.diff.keys import COLUMNS
from opscope.core.analysis.diff.reduced import (
    KERNELS,
    PART_NAMES,
    RUN,
    SPENT,
    STEP,
    STEPS,
    UNITS,
    WHOLE,
    WORK,
    Reduced,
)
from opscope.core.analysis.diff.samples import sampled
from opscope.core.analysis.host.input_waits import WAITS
from opscope.core.analysis.steps.warm_up import warm_up
from opscope.core.light_format import PHASES
from opscope.core.tables.intervals import NONE
from opscope.core.tables.trace import Trace

#: The only phase that is also a part of a step in a profile with ops.
_INPUT = PHASES.index("input")
KEYS = {"key": pl.Int64, **dict.fromkeys(COLUMNS, pl.Categorical), "named": pl.Boolean}


def reduce_light(trace: Trace, how: str) -> Reduced:
    """Return a difference's data about the steps that light mode measured (``light.is_light``).

    A unit is a step if the profile has all steps; then warm-up steps are left out. Otherwise it is a stretch
    of steps, whose sums are exact. ``how``: with STEPS the parts are light mode's phases; otherwise they are
    the parts of profiles with ops, of which light mode only knows the data loader. With WHOLE all steps of a
    process are one unit.
    """
    table, steps, left_out = _run(trace) if how == WHOLE else _steps(trace)
    unit = RUN if how == WHOLE else STEP
    units = sampled(
        table.select(
            "process", "step", "start", (pl.col("start") + pl.col("duration")).alias("end")
        ).cast(dict(UNITS.items())),
        steps,
    )
    has_phase = [bool(table[name].sum()) or name == "other" for name in PHASES]
    names: tuple[str, ...] = PHASES
    part_of_phase = dict(enumerate(range(len(PHASES))))
    if how != STEPS:
        rest = len(PART_NAMES) - 1
        names = PART_NAMES
        part_of_phase = dict.fromkeys(range(len(PHASES)), rest)
        if has_phase[_INPUT]:
            part_of_phase[_INPUT] = PART_NAMES.index("data loader")
        has_phase = [number in part_of_phase.values() for number in range(len(PART_NAMES))]
    spent = pl.concat(
        pl.DataFrame(
            {
                "unit": np.arange(len(table)),
                "part": np.full(len(table), part_of_phase[number]),
                "key": np.full(len(table), NONE),
                "time": table[name],
            },
            schema=SPENT,
        )
        for number, name in enumerate(PHASES)
    )
    spent = spent.group_by("unit", "part", "key").agg(pl.col("time").sum())
    keys = pl.DataFrame(schema=KEYS)
    facts = about(
        trace,
        unit,
        units,
        left_out,
        pl.DataFrame(schema=WAITS),
    )
    return Reduced(
        unit,
        units,
        left_out,
        None,
        keys,
        spent,
        pl.DataFrame(schema=WORK),
        pl.DataFrame(schema=KERNELS),
        tuple(has_phase),
        facts,
        tuple(trace["processes"]["framework"].drop_nulls().unique().sort().to_list()),
        names,
        has_ops=False,
    )


def _run(trace: Trace) -> tuple[pl.DataFrame, pl.Series | None, int]:
    """Like ``_steps``, but with all steps of a process as one row."""
    sums = ("duration", *PHASES)
    blocks_of_process = (
        trace["light_blocks"].group_by("process").agg(pl.col("start").min(), pl.col(sums).sum())
    )
    row = blocks_of_process.sort("process").with_columns(pl.lit(None, pl.Int64).alias("step"))
    return row.select("process", "step", "start", *sums), None, 0


def _steps(trace: Trace) -> tuple[pl.DataFrame, pl.Series | None, int]:
    """Return the rows to compare (process, step, start, duration and PHASES), the number of steps in each
    (None: one), and the number of steps left out as warm-up."""
    columns = ("process", "step", "start", "duration", *PHASES)
    blocks = trace["light_blocks"].rename({"first_step": "step"})
    steps = trace["light_steps"].filter(~pl.col("full").fill_null(False))
    sums = ("duration", *PHASES)
    every = blocks["steps"].sum() == len(steps) and all(
        blocks[name].sum() == steps[name].sum() for name in sums
    )
    if not every:
        return blocks.select(columns), blocks["steps"], 0
    judged = steps.with_columns(pl.col("duration").alias("time"), pl.lit(True).alias("seen"))
    kept = steps.filter(~warm_up(judged).fill_null(False))
    return kept.select(columns), None, len(steps) - len(kept)
