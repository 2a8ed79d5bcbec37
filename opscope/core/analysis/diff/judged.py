"""Whether a change is more than chance: slower, faster, new, gone, same or within the noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.diff.noise import FEWEST, Typical, absent, as_one_of, noise, typical
from opscope.core.analysis.diff.reduced import Reduced
from opscope.core.analysis.diff.samples import means

#: Verdicts; null if both runs have the row and the noise is unknown, or if one run may lack it by chance.
SLOWER, FASTER, NEW, GONE = "slower", "faster", "new", "gone"
SAME, UNCLEAR = "same", "within noise"
#: Why the noise is unknown, or why it is unknown whether an op is new or gone.
FEW: Final = "in {} of {} steps of A and {} of {} of B: too few to tell a change from chance"


def typical_of(reduced: Reduced, values: pl.DataFrame, groups: int) -> Typical:
    """Return the typical values of ``values`` (group, unit, time) of a run, for ``groups`` groups."""
    values_of_groups, samples = means(values, reduced.units)
    return typical(values_of_groups, groups, samples)


def typicals_of(
    sides: Sequence[Reduced], values: Sequence[pl.DataFrame], groups: int
) -> list[Typical]:
    """Return the typical values of each run's ``values`` (group, unit, time). If one side consists of
    several runs, each is an observation, and the other side is judged as one of them."""
    both = [typical_of(side, own, groups) for side, own in zip(sides, values, strict=True)]
    several = [side.runs > 1 and side.runs == samples(side) for side in sides]
    if several[0] != several[1]:
        of_runs = both[several.index(True)]
        both = [
            typical if runs else as_one_of(of_runs, typical)
            for typical, runs in zip(both, several, strict=True)
        ]
    return both


def samples(reduced: Reduced) -> int:
    """Return how many observations of a step a run has."""
    return reduced.units["sample"].n_unique()


def judged(
    frame: pl.DataFrame,
    sides: Sequence[Typical] | None,
    there: tuple[pl.Series, pl.Series] | None = None,
    hidden: NDArray[np.int64] | None = None,
    of_pieces: bool = False,
) -> pl.DataFrame:
    """Return the frame with change, noise (ns), verdict and reason; ``there``: whether each run has the row.

    ``sides``: the typical values of the two runs; None if the noise is unknown. A change gets a verdict if
    the typical step changed by more than the noise, and the mean in the same direction. ``hidden``: an amount
    added to the noise (ns), because it may belong to another part in one run. ``of_pieces``: the rows are ops
    or parts, for which a few equal times are common and do not show the spread. ``reason``: why noise and
    verdict are unknown for rows with few steps.
    """
    change = pl.col("b").fill_null(0) - pl.col("a").fill_null(0)
    is_present = pl.col("a").is_not_null() | pl.col("b").is_not_null()
    frame = frame.with_columns(pl.when(is_present).then(change).alias("change"))
    fewest = FEWEST if of_pieces else 0
    limit = None if sides is None else noise(sides[0], sides[1], fewest)
    if limit is not None and hidden is not None:
        limit = limit + hidden
    few = pl.repeat(False, len(frame), dtype=pl.Boolean, eager=True)
    if sides is None or limit is None:
        frame = frame.with_columns(
            pl.lit(None, pl.Int64).alias("noise"), pl.lit(None, pl.String).alias("verdict")
        )
    else:
        moved = sides[1].middle - sides[0].middle
        beyond = np.abs(moved) > limit
        few = pl.Series(np.isnan(limit))
        frame = frame.with_columns(
            pl.Series("noise", np.ceil(limit)).fill_nan(None).cast(pl.Int64),
            pl.when(few)
            .then(pl.lit(None, pl.String))
            .when(pl.Series(beyond & (moved > 0)) & (pl.col("change") > 0))
            .then(pl.lit(SLOWER))
            .when(pl.Series(beyond & (moved < 0)) & (pl.col("change") < 0))
            .then(pl.lit(FASTER))
            .otherwise(pl.lit(UNCLEAR))
            .alias("verdict"),
        )
    same = pl.when(pl.col("change") == 0).then(pl.lit(SAME)).otherwise("verdict").alias("verdict")
    is_present = pl.col("a").is_not_null() & pl.col("b").is_not_null()
    frame = frame.with_columns(same).with_columns(
        pl.when(is_present).then(name).alias(name) for name in ("noise", "verdict")
    )
    if there is not None:
        one, other = there[0] & ~there[1], ~there[0] & there[1]
        chance = few & False
        if sides is not None:
            proven = [pl.Series(absent(*sides)), pl.Series(absent(sides[1], sides[0]))]
            chance = (one & ~proven[0]) | (other & ~proven[1])
        few = few | chance
        frame = frame.with_columns(
            pl.when(chance).then(pl.lit(None, pl.String))
            .when(one).then(pl.lit(GONE))
            .when(other).then(pl.lit(NEW))
            .otherwise("verdict").alias("verdict")
        )  # fmt: skip
    return frame.with_columns(_why(sides, few & frame.select(is_present).to_series()))


def _why(held: Sequence[Typical] | None, few: pl.Series) -> pl.Series:
    """Return ``reason`` for the rows with too few known steps."""
    texts: list[str | None] = [None] * len(few)
    if held is not None:
        for row in few.arg_true().to_list():
            a, b = (int(side.seen[row]) for side in held)
            texts[row] = FEW.format(a, held[0].steps, b, held[1].steps)
    return pl.Series("reason", texts, pl.String)
