"""The observations from which the noise is computed: steps, steps of all ranks together, or stretches of
steps."""

from __future__ import annotations

from typing import Final

import polars as pl

#: ``sample``: the observation that a unit belongs to. ``steps``: number of steps in a unit.
SAMPLED: Final = {"sample": pl.Int64, "steps": pl.Int64}


def sampled(units: pl.DataFrame, steps: pl.Series | None = None) -> pl.DataFrame:
    """Return the units (process, step, start, end) with ``SAMPLED``; ``steps``: 1 each, unless given.

    The ranks of a job make the same step at the same time, and one waits while another works, so only their
    mean is an observation. Units of several processes with the same step number (or the same place, if steps
    have no number) are therefore one observation.
    """
    weight = pl.lit(1, pl.Int64).alias("steps") if steps is None else steps.alias("steps")
    if units["process"].n_unique() < 2:
        sample = pl.int_range(pl.len(), dtype=pl.Int64)
    else:
        nth = pl.int_range(pl.len()).over("process", "step")
        sample = pl.struct("step", nth.alias("nth")).rank("dense").cast(pl.Int64) - 1
    return units.with_columns(sample.alias("sample"), weight)


def means(values: pl.DataFrame, units: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return the mean step (``time``, ns) of each group and sample, as group, unit, time; and the number of
    samples.

    ``values``: group, unit, time; ``units`` are ``sampled``.
    """
    sizes = units.group_by("sample").agg(pl.col("steps").sum()).sort("sample")
    if len(sizes) == len(units) and (sizes["steps"] == 1).all():
        return values.select("group", "unit", "time"), len(units)
    times_of_units = values.select(
        "group", units["sample"].gather(values["unit"]).alias("unit"), pl.col("time")
    )
    size = sizes["steps"].gather(times_of_units["unit"])
    return (
        times_of_units.with_columns(pl.Series("time", times_of_units["time"] / size))
        .group_by("group", "unit")
        .agg(pl.col("time").sum()),
        len(sizes),
    )
