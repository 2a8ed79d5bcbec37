"""How baselines change over time: a row each, and where the step changed by more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.diff.judged import FASTER, SLOWER
from opscope.core.analysis.diff.order import chance
from opscope.core.analysis.diff.reduced import RUN, Reduced
from opscope.core.analysis.diff.tables import Difference
from opscope.core.analysis.diff.waited import MOST
from opscope.reports.difference import headline

from .folder import Baseline

#: A change is named if the order of its runs has at most this chance in a sequence without a change.
LEVEL: Final = 0.05
#: With at most this many runs in all, changes are judged by the runs' steps instead.
FEWEST: Final = 3
TREND: Final = {
    "baseline": pl.String,
    "commit": pl.String,
    "saved": pl.String,
    "runs": pl.Int64,
    "steps": pl.Int64,
    "step": pl.Int64,
    "ratio": pl.Float64,
    "ops": pl.Float64,
    "flops": pl.Float64,
    "ranks": pl.Int64,
    "spread": pl.Int64,
    "late": pl.Int64,
    "change": pl.String,
}


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the step: ``first`` is the position of the first baseline that has it. ``before`` and
    ``after``: mean steps (ns) of the runs on both sides, up to the next changes; ``chance``: how likely runs
    without a change would show it, None if it was judged by steps; ``why``: the difference's explanation."""

    first: int
    before: float
    after: float
    chance: float | None
    why: str


def trend(baselines: Sequence[Baseline]) -> tuple[pl.DataFrame, list[Change]]:
    """Return a row per baseline (``TREND``), in the order given, and the changes of the step.

    ``step``: mean step in ns; ``ratio``: its change from the baseline before, as a fraction; ``ops`` and
    ``flops``: of a mean step, null where they are not known. ``ranks``: of a job of several; ``spread``: own
    work of the rank with the most minus own work of the rank with the least, in ns of a mean step; ``late``:
    the rank for which the others wait most, if that is half of all waiting.
    """
    splits = changes(baselines)
    rows, before = [], 0
    said = {change.first: f"{change.after / change.before - 1:+.1%} from here" for change in splits}
    for number, baseline in enumerate(baselines):
        reduced = baseline.reduced
        step = round(reduced.mean)
        ratio = step / before - 1 if before else None
        ops, flops = _work(reduced)
        rows.append(
            (baseline.name, baseline.commit, baseline.saved, len(baseline.runs),
             int(reduced.units["steps"].sum()), step, ratio, ops, flops, *_ranks(reduced), said.get(number))
        )  # fmt: skip
        before = step
    return pl.DataFrame(rows, schema=TREND, orient="row"), splits


def changes(baselines: Sequence[Baseline]) -> list[Change]:
    """Return where the step changed by more than the runs differ by chance, in order.

    A sequence is split at the edge that is least likely by chance (Mann and Whitney's test), and
    each part again, while that chance is at most ``LEVEL``. The test holds for noise of every
    distribution. One run alone never names a change.
    """
    values = [[run.reduced.mean for run in baseline.runs] for baseline in baselines]
    units = {baseline.reduced.unit for baseline in baselines}
    if len(units) > 1:
        return []
    is_by_runs = sum(map(len, values)) > FEWEST
    if is_by_runs:
        edges = _kept(values, _splits(values, 0, len(values)))
    else:  # too few runs to know how much runs differ: compare their steps
        edges = [
            number
            for number in range(1, len(baselines))
            if Difference(baselines[number - 1].reduced, baselines[number].reduced).step["verdict"][
                0
            ]
            in (SLOWER, FASTER)
        ]
    bounds = [0, *edges, len(values)]
    splits = []
    for low, edge, high in zip(bounds, edges, bounds[2:], strict=False):
        means = [fmean(chain(*values[part])) for part in (slice(low, edge), slice(edge, high))]
        difference = Difference(baselines[edge - 1].reduced, baselines[edge].reduced)
        often = _by_chance(values, low, edge, high) if is_by_runs else None
        splits.append(Change(edge, means[0], means[1], often, headline(difference)))
    return splits


def _splits(values: Sequence[list[float]], low: int, high: int) -> list[int]:
    """Return where the values change between ``low`` and ``high``: the best split, and the best splits of its
    parts."""
    often = {edge: _by_chance(values, low, edge, high) for edge in range(low + 1, high)}
    edge = min(often, key=lambda each: often[each], default=low)
    if often.get(edge, 1.0) > LEVEL:
        return []
    return [*_splits(values, low, edge), edge, *_splits(values, edge, high)]


def _kept(values: Sequence[list[float]], edges: Sequence[int]) -> list[int]:
    """Return the edges that stay significant between their neighbours, dropping the weakest first."""
    edges = [*edges]
    while edges:
        bounds = [0, *edges, len(values)]
        often = [
            _by_chance(values, *three) for three in zip(bounds, edges, bounds[2:], strict=False)
        ]
        weakest = max(range(len(edges)), key=often.__getitem__)
        if often[weakest] <= LEVEL:
            break
        del edges[weakest]
    return edges


def _by_chance(values: Sequence[list[float]], low: int, edge: int, high: int) -> float:
    """Return how likely chance alone gives such a split at any edge between ``low`` and ``high``."""
    sides = [[*chain(*values[part])] for part in (slice(low, edge), slice(edge, high))]
    return min(1.0, chance(*sides) * (high - low - 1))


def _work(reduced: Reduced) -> tuple[float | None, float | None]:
    """Return how many ops a mean step calls, and their FLOPs."""
    if not reduced.has_ops or reduced.unit == RUN or reduced.work.is_empty():
        return None, None
    calls = reduced.work.group_by("key").agg(pl.col("calls").sum())
    ops = calls.join(reduced.keys, on="key").filter(~pl.col("named"))
    total = (ops["calls"] * ops["flops"]).sum() if not ops["flops"].null_count() else None
    return int(ops["calls"].sum()) / reduced.many, None if total is None else int(
        total
    ) / reduced.many


def _ranks(reduced: Reduced) -> tuple[int | None, int | None, int | None]:
    """Return the number of ranks, the spread (ns) of their own work, and the rank that others wait for."""
    steps = reduced.ranked
    if steps.is_empty():
        return None, None, None
    own = "time" if steps["work"].null_count() else "work"
    means = steps.group_by("process").agg(pl.col(own).mean())[own]
    waiting = reduced.waiting
    most = waiting.head(1)
    is_late = len(most) and most["waiting"][0] > MOST * int(waiting["waiting"].sum())
    least, largest = (int(mean) for mean in np.sort(means.to_numpy())[[0, -1]])
    return len(means), largest - least, most["rank"][0] if is_late else None
