"""How much of a change of communication is waiting for one rank, and what takes that rank longer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from opscope.core.analysis.diff.reduced import Reduced

COMMUNICATION: Final = "communication"
#: Smallest share of communication's change, and of the waiting, for which one rank is named.
MOST: Final = 0.5


@dataclass(frozen=True, slots=True)
class Waited:
    """The change of the waiting in collectives in a mean step (``change``, ns), and the ``rank`` that
    causes most of it (None: no rank causes half of it); ``part``: what takes that rank longer in its own
    step, and by how much (``longer``, ns); None if nothing explains half of it."""

    change: int
    rank: int | None = None
    part: str | None = None
    longer: int | None = None


def waited(a: Reduced, b: Reduced, change: int) -> Waited | None:
    """Return the waiting that explains ``change``, communication's change (ns); None if it explains less
    than half."""
    sums = [int(side.waiting["waiting"].sum() or 0) // side.many for side in (a, b)]
    moved = sums[1] - sums[0]
    if not change or moved / change < MOST:
        return None
    most = (b if moved > 0 else a).waiting.head(1).to_dicts()
    if not most or most[0]["rank"] is None:
        return Waited(moved)
    rank = most[0]["rank"]
    for_it = [
        int(side.waiting.filter(pl.col("rank") == rank)["waiting"].sum() or 0) // side.many
        for side in (a, b)
    ]
    if (for_it[1] - for_it[0]) / moved < MOST:
        return Waited(moved)
    parts = [_of_rank(side, rank) for side in (a, b)]
    if not parts[0] or not parts[1]:
        return Waited(moved, rank)
    longer = {name: parts[1].get(name, 0) - parts[0].get(name, 0) for name in a.parts[1:]}
    name = max(longer, key=lambda rank: longer[rank] * (1 if moved > 0 else -1))
    if longer[name] / moved < MOST:
        return Waited(moved, rank)
    return Waited(moved, rank, name, longer[name])


def _of_rank(reduced: Reduced, rank: int) -> dict[str, int]:
    """Return the mean time (ns) of each part in a rank's step; empty if the rank has no steps."""
    ranks = dict(reduced.ranks)
    process = next((process for process, own_rank in ranks.items() if own_rank == rank), None)
    if process is None:
        return {}
    mine = reduced.units.with_row_index("unit").filter(pl.col("process") == process)
    if mine.is_empty():
        return {}
    spent = reduced.spent.filter(pl.col("unit").is_in(mine["unit"].implode()))
    sums = dict(spent.group_by("part").agg(pl.col("time").sum()).iter_rows())
    return {name: int(sums.get(index, 0)) // len(mine) for index, name in enumerate(reduced.parts)}
