"""How much the typical step of two runs may differ by chance: Yuen's test on trimmed means.

K. K. Yuen, "The two-sample trimmed t for unequal population variances", Biometrika 61, 1974. The largest and
smallest fifth of each run's steps are left out of the mean, so that one slow step neither causes nor hides a
difference; the variance is computed with these values replaced by the nearest ones kept. With fewer than five
steps nothing is left out, and the test is Welch's. The noise is half the width of the 99.9 % confidence
interval of the difference: of a thousand unchanged ops, one is reported by chance.

For few calls the noise is unknown. If all times of an op are among the steps left out, or if a handful of
equal times show no spread, a variance of 0 is an artefact of the method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

#: The share of the steps left out at each end.
TRIMMED: Final = 0.2
#: The 0.9995 quantiles of Student's t for 1 to 30 degrees of freedom, then for those of ``_MORE``.
_T: Final = (
    *(636.619, 31.599, 12.924, 8.610, 6.869, 5.959, 5.408, 5.041, 4.781, 4.587),
    *(4.437, 4.318, 4.221, 4.140, 4.073, 4.015, 3.965, 3.922, 3.883, 3.850),
    *(3.819, 3.792, 3.768, 3.745, 3.725, 3.707, 3.690, 3.674, 3.659, 3.646),
)
_MORE: Final = {40: 3.551, 60: 3.460, 120: 3.373, 1_000_000: 3.291}
_DEGREES: Final = np.array([*range(1, len(_T) + 1), *_MORE], np.float64)
_VALUES: Final = np.array([*_T, *_MORE.values()], np.float64)
#: Fewest equal times from which the spread is taken to be 0. By the rule of three, less than 3 / n of the
#: steps take another time (95 %); from n = 15 on, the fifth that is left out contains these.
FEWEST: Final = 15
#: Probability that an unchanged value is reported as changed.
CHANCE: Final = 0.001
Floats = NDArray[np.float64]


def quantile(degrees: Floats) -> Floats:
    """Return the 0.9995 quantile of Student's t, for the next lower tabulated degrees of freedom."""
    index = np.searchsorted(_DEGREES, np.maximum(degrees, 1.0), side="right") - 1
    quantiles: Floats = _VALUES[index]
    return quantiles


@dataclass(frozen=True, slots=True)
class Typical:
    """The trimmed mean (ns) of each group's steps, and its variance; None for fewer than two steps.

    ``kept`` of ``steps`` are in the mean; ``seen``: the number of steps in which the group took time.
    """

    middle: Floats
    variance: Floats | None
    kept: int
    steps: int
    seen: NDArray[np.int64]


def typical(values: pl.DataFrame, groups: int, units: int) -> Typical:
    """Return the typical values of each group 0 … ``groups`` - 1 over ``units`` units.

    ``values``: group, unit and time (ns, not negative), at most one row per group and unit; a unit without a
    row has 0.
    """
    cut = int(TRIMMED * units)
    kept = units - 2 * cut
    group = values["group"].cast(pl.Int64).to_numpy()
    time = values["time"].to_numpy().astype(np.float64)
    order = np.lexsort((time, group))
    group, time = group[order], time[order]
    counts = np.bincount(group, minlength=groups)
    first = np.cumsum(counts) - counts
    # zeros come first among the sorted values of a group
    index = np.arange(len(time)) - first[group] + (units - counts)[group]

    def value_at(rank: int) -> Floats:
        where = first + rank - (units - counts)
        inside = rank >= units - counts
        values = np.zeros(groups)
        values[inside] = time[where[inside]]
        return values

    seen = np.bincount(group[time > 0], minlength=groups)
    if not units:
        return Typical(np.zeros(groups), None, 0, 0, seen)
    middle = np.zeros(groups)
    within = (index >= cut) & (index < units - cut)
    np.add.at(middle, group[within], time[within])
    middle /= kept
    if units < 2:
        return Typical(middle, None, kept, units, seen)
    low, high = value_at(cut), value_at(units - cut - 1)
    clipped = np.clip(time, low[group], high[group])
    zeros = (units - counts).astype(np.float64)
    total = zeros * low
    np.add.at(total, group, clipped)
    mean = total / units
    spread = zeros * (low - mean) ** 2
    np.add.at(spread, group, (clipped - mean[group]) ** 2)
    return Typical(middle, spread / (kept * (kept - 1)), kept, units, seen)


def typical_value(values: Sequence[float]) -> Typical:
    """Return the typical value of values (ns) of a single group, each an observation."""
    times = np.asarray(values, np.float64)
    frame = pl.DataFrame({"group": np.zeros(len(times), np.int64), "time": times})
    return typical(frame, 1, len(times))


def noise(a: Typical, b: Typical, fewest: int = 0) -> Floats | None:
    """Return how far (ns) the typical steps may differ by chance; None if a run has fewer than two steps.

    NaN: too few steps of the group have any time, or fewer than ``fewest`` steps of a run have, and their
    times are equal.
    """
    if a.variance is None or b.variance is None:
        return None
    both = a.variance + b.variance
    parts = a.variance**2 / (a.kept - 1) + b.variance**2 / (b.kept - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        degrees = np.where(parts > 0, both**2 / parts, 1.0)
    limit = quantile(np.floor(degrees + 1e-9)) * np.sqrt(both)
    unknown = np.zeros(len(limit), bool)
    for side in (a, b):
        left_out = (side.seen > 0) & (side.middle == 0)
        few = (side.seen > 0) & (side.seen < fewest) | (side.steps < fewest)
        unknown |= left_out | (few & (limit == 0))
    limits: Floats = np.where(unknown & (a.seen + b.seen > 0), np.nan, limit)
    return limits


def as_one_of(several: Typical, lone: Typical) -> Typical:
    """Return the typical values of one run compared with several runs of a program, each an observation.

    The mean of the single run may differ by chance as much as the means of the others do. Its own steps do
    not show this, because runs differ more than steps.
    """
    if several.variance is None:
        return lone
    each = several.variance * several.kept
    variance = each if lone.variance is None else np.maximum(lone.variance, each)
    kept = several.kept if lone.kept < 2 else min(several.kept, lone.kept)
    return replace(lone, variance=variance, kept=kept)


def absent(there: Typical, away: Typical) -> NDArray[np.bool_]:
    """Return whether it is more than chance (``CHANCE``) that groups of one run are in no step of the other.

    A group may be missing in a step of the other run by chance as often as it is missing in its own run. If
    it occurs in a tenth of the steps, its absence in ten steps proves nothing.
    """
    missing = 1 - there.seen / max(there.steps, 1)
    proven: NDArray[np.bool_] = missing**away.steps < CHANCE
    return proven
