"""Two programs run in turns: decide whether one is faster, by the typical step of each run and their noise.

The runs are examined after each turn, and each look may be wrong by chance. So a decision needs two
conditions. First, the typical steps differ by more than their noise (Yuen's test, as in a difference).
Second, equal programs give runs in such an order so rarely that the chances of all looks together stay below
``LEVEL``, however many looks there are. Each look may spend the share that the linear spending function gives
it (K. K. G. Lan, D. L. DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 70, 1983),
and the sum bounds the total chance. On a machine with two speeds, three runs are often equal, and Yuen's test
alone, at each look, reported 6.7 % of changes that had no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.diff.judged import FASTER, SLOWER, typical_of
from opscope.core.analysis.diff.noise import noise, typical_value
from opscope.core.analysis.diff.order import chance, chances
from opscope.core.analysis.diff.reduced import Reduced
from opscope.core.analysis.diff.tables import lengths

#: Probability that a change without effect is reported, over all looks together.
LEVEL: Final = 0.05
#: The fewest runs of each program for a verdict, and the most that are made.
FEWEST, MOST = 4, 50
#: Number of runs of each program from which the noise is shown.
_NOISY: Final = 3


@dataclass(frozen=True, slots=True)
class Decision:
    """The result for the step: ``verdict`` (faster, slower, None: not known), ``before`` and ``after`` (ns,
    means of the runs), the noise (ns; None: too few runs), whether the change is ``beyond`` it, and the
    ``chance`` that equal programs give runs in such an order."""

    verdict: str | None
    before: float
    after: float
    noise: float | None
    beyond: bool
    chance: float

    @property
    def ratio(self) -> float:
        """The change as a fraction of before."""
        return self.after / self.before - 1 if self.before else 0.0


def decide(
    before: Sequence[float], after: Sequence[float], most: int, last: bool = False
) -> Decision:
    """Return the decision from the runs' typical steps (ns), as many without the change as with it.

    ``most``: how many runs of each there may be, with a look after each. ``last``: this is the last look,
    because the time is over; it may spend the rest of ``LEVEL``.
    """
    count = len(before)
    sides = typical_value(before), typical_value(after)
    limits = noise(*sides) if count >= _NOISY else None
    limit = None if limits is None or np.isnan(limits[0]) else float(limits[0])
    means = float(np.mean(before)), float(np.mean(after))
    moved = float(sides[1].middle[0] - sides[0].middle[0])
    beyond = limit is not None and abs(moved) > limit and moved * (means[1] - means[0]) > 0
    often = chance(before, after)
    may_spend = spending(most)[count][0]
    if last:
        may_spend = LEVEL - sum(spent for _, spent in spending(most)[:count])
    verdict = (SLOWER if moved > 0 else FASTER) if beyond and often <= may_spend else None
    return Decision(verdict, *means, limit, beyond, often)


@lru_cache(maxsize=8)
def spending(most: int) -> tuple[tuple[float, float], ...]:
    """Return two shares of ``LEVEL`` for each number of runs from 0 to ``most``: the share that the look
    after these runs may spend, and the share that it does spend. They differ because the test's
    probabilities are discrete."""
    looks: list[tuple[float, float]] = []
    for count in range(most + 1):
        share = LEVEL * count / most - sum(spent for _, spent in looks)
        spends = chances(count, count)
        looks.append((share, float(spends[spends <= share].max(initial=0.0))))
    return tuple(looks)


def typical_step(reduced: Reduced) -> float:
    """Return the trimmed mean (ns) of a run's steps; for a run without steps, its duration."""
    group = pl.lit(0, pl.Int64).alias("group")
    return float(typical_of(reduced, lengths(reduced).with_columns(group), 1).middle[0])
