"""Whether a change is more than chance: slower, faster, new, gone, same or within the noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.diff.noise import Typical, noise, typical
from opscope.core.analysis.diff.reduced import Reduced
from opscope.core.analysis.diff.samples import means

#: Verdicts; null where the noise is not known and both runs have it.
SLOWER, FASTER, NEW, GONE = "slower", "faster", "new", "gone"
SAME, UNCLEAR = "same", "within noise"


def typical_of(one: Reduced, values: pl.DataFrame, groups: int) -> Typical:
    """Return what is typical of ``values`` (group, unit, time) of a run, in ``groups`` groups."""
    found, samples = means(values, one.units)
    return typical(found, groups, samples)


def samples(one: Reduced) -> int:
    """Return how many observations of a step a run has."""
    return one.units["sample"].n_unique()


def judged(
    frame: pl.DataFrame,
    held: Sequence[Typical] | None,
    there: tuple[pl.Series, pl.Series] | None = None,
    hidden: NDArray[np.int64] | None = None,
) -> pl.DataFrame:
    """Return the frame with change, noise (ns) and verdict; ``there``: whether each run has it at all.

    ``held``: what is typical of both runs; None if the noise is not known. A change is called if the typical
    step changed by more than the noise, and the mean in the same direction. ``hidden``: what is added to the
    noise (ns), as it may be another part's in one run.
    """
    change = pl.col("b").fill_null(0) - pl.col("a").fill_null(0)
    known = pl.col("a").is_not_null() | pl.col("b").is_not_null()
    frame = frame.with_columns(pl.when(known).then(change).alias("change"))
    limit = None if held is None else noise(*held)
    if limit is not None and hidden is not None:
        limit = limit + hidden
    if held is None or limit is None:
        frame = frame.with_columns(
            pl.lit(None, pl.Int64).alias("noise"), pl.lit(None, pl.String).alias("verdict")
        )
    else:
        moved = held[1].middle - held[0].middle
        beyond = np.abs(moved) > limit
        frame = frame.with_columns(
            pl.Series("noise", np.ceil(limit)).cast(pl.Int64),
            pl.when(pl.Series(beyond & (moved > 0)) & (pl.col("change") > 0))
            .then(pl.lit(SLOWER))
            .when(pl.Series(beyond & (moved < 0)) & (pl.col("change") < 0))
            .then(pl.lit(FASTER))
            .otherwise(pl.lit(UNCLEAR))
            .alias("verdict"),
        )
    same = pl.when(pl.col("change") == 0).then(pl.lit(SAME)).otherwise("verdict").alias("verdict")
    known = pl.col("a").is_not_null() & pl.col("b").is_not_null()
    frame = frame.with_columns(same).with_columns(
        pl.when(known).then(name).alias(name) for name in ("noise", "verdict")
    )
    if there is None:
        return frame
    return frame.with_columns(
        pl.when(there[0] & ~there[1]).then(pl.lit(GONE))
        .when(~there[0] & there[1]).then(pl.lit(NEW))
        .otherwise("verdict").alias("verdict")
    )  # fmt: skip
