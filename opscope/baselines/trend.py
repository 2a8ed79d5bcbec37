"""How baselines change over time: a row each, and where the step changed by more than the runs' noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from statistics import fmean
from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.diff.judged import FASTER, SLOWER
from opscope.core.analysis.diff.noise import Typical, as_one_of, noise, typical_value
from opscope.core.analysis.diff.reduced import RUN, Reduced
from opscope.core.analysis.diff.tables import Difference
from opscope.reports.difference import headline

from .folder import Baseline

#: Runs that must lie on one side of a change, where the other has one.
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
    "change": pl.String,
}


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the step beyond the noise: ``first`` is the place of the first baseline with it.

    ``before`` and ``after``: mean steps (ns) of the runs on both sides, up to the next changes; ``why``: what
    explains it, in the difference's words.
    """

    first: int
    before: float
    after: float
    noise: float
    why: str


def trend(baselines: Sequence[Baseline]) -> tuple[pl.DataFrame, list[Change]]:
    """Return a row per baseline (``TREND``), in the order given, and the changes of the step.

    ``step``: mean step in ns; ``ratio``: its change from the baseline before, as a fraction; ``ops`` and
    ``flops``: of a mean step, null where they are not known.
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
             int(reduced.units["steps"].sum()), step, ratio, ops, flops, said.get(number))
        )  # fmt: skip
        before = step
    return pl.DataFrame(rows, schema=TREND, orient="row"), splits


def changes(baselines: Sequence[Baseline]) -> list[Change]:
    """Return where the step changed by more than the noise of the runs, in order.

    A sequence is split where the means of the runs on both sides differ most beyond their noise (Yuen's test,
    as of a difference), and each part again, until none does.
    """
    values = [[run.reduced.mean for run in baseline.runs] for baseline in baselines]
    units = {baseline.reduced.unit for baseline in baselines}
    if len(units) > 1:
        return []
    if sum(map(len, values)) > FEWEST:
        edges = _kept(values, _splits(values, 0, len(values)))
    else:  # too few runs to know how runs differ: their steps tell
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
        sides = [[*chain(*values[part])] for part in (slice(low, edge), slice(edge, high))]
        limit = _limit(*(typical_value(side) for side in sides))
        difference = Difference(baselines[edge - 1].reduced, baselines[edge].reduced)
        chance = float(difference.step["noise"][0] or 0) if limit is None else limit
        means = [fmean(side) for side in sides]
        splits.append(Change(edge, means[0], means[1], chance, headline(difference)))
    return splits


def _splits(values: Sequence[list[float]], low: int, high: int) -> list[int]:
    """Return where the values change between ``low`` and ``high``: the best split, and those of its parts."""
    beyond = {edge: _beyond(values, low, edge, high) for edge in range(low + 1, high)}
    edge = max(beyond, key=lambda each: beyond[each], default=low)
    if beyond.get(edge, 0.0) <= 1:
        return []
    return [*_splits(values, low, edge), edge, *_splits(values, edge, high)]


def _kept(values: Sequence[list[float]], edges: Sequence[int]) -> list[int]:
    """Return the edges whose two sides, up to the next edges, differ beyond the noise.

    A mean without its largest values does not see one value of the other side, so that a first split may lie
    beside the change, which a second then finds.
    """
    edges = sorted(edges)
    while edges:
        bounds = [0, *edges, len(values)]
        beyond = [_beyond(values, *three) for three in zip(bounds, edges, bounds[2:], strict=False)]
        weakest = min(range(len(edges)), key=beyond.__getitem__)
        if beyond[weakest] > 1:
            break
        del edges[weakest]
    return edges


def _beyond(values: Sequence[list[float]], low: int, edge: int, high: int) -> float:
    """Return how many times the noise the values before and from ``edge`` on differ; 0: it is not known."""
    a, b = (
        typical_value([*chain(*values[part])]) for part in (slice(low, edge), slice(edge, high))
    )
    limit = _limit(a, b)
    moved = abs(float(b.middle[0] - a.middle[0]))
    if limit is None or not moved:
        return 0.0
    return moved / limit if limit else inf


def _limit(a: Typical, b: Typical) -> float | None:
    """Return how far (ns) two sides may differ by chance; None where too few runs tell."""
    if a.steps < 2 and b.steps >= FEWEST:
        a = as_one_of(b, a)
    elif b.steps < 2 and a.steps >= FEWEST:
        b = as_one_of(a, b)
    limit = noise(a, b)
    return None if limit is None or np.isnan(limit[0]) else float(limit[0])


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
