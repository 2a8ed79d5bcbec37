"""Two programs run by turns: whether one is faster, by the typical step of each run and their noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.diff.judged import FASTER, SLOWER, typical_of
from opscope.core.analysis.diff.noise import noise, typical_value
from opscope.core.analysis.diff.reduced import Reduced
from opscope.core.analysis.diff.tables import lengths

#: Runs of each before anything is decided.
FEWEST: Final = 3


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of the step: ``verdict`` (faster, slower, None: not beyond the noise), ``before`` and
    ``after`` (ns, means of the runs), and the noise (ns; None: too few runs)."""

    verdict: str | None
    before: float
    after: float
    noise: float | None

    @property
    def ratio(self) -> float:
        """The change as a fraction of before."""
        return self.after / self.before - 1 if self.before else 0.0


def decide(before: Sequence[float], after: Sequence[float]) -> Decision:
    """Return the decision of the typical steps (ns) of each run without the change and with it: each run is
    one observation, by Yuen's test as of a difference."""
    sides = typical_value(before), typical_value(after)
    limit = noise(*sides) if min(len(before), len(after)) >= FEWEST else None
    means = float(np.mean(before)), float(np.mean(after))
    if limit is None or np.isnan(limit[0]):
        return Decision(None, *means, None)
    moved = float(sides[1].middle[0] - sides[0].middle[0])
    beyond = abs(moved) > limit[0] and moved * (means[1] - means[0]) > 0
    verdict = (SLOWER if moved > 0 else FASTER) if beyond else None
    return Decision(verdict, *means, float(limit[0]))


def typical_step(reduced: Reduced) -> float:
    """Return the trimmed mean (ns) of a run's steps; of a whole run, how long it took."""
    group = pl.lit(0, pl.Int64).alias("group")
    return float(typical_of(reduced, lengths(reduced).with_columns(group), 1).middle[0])
