"""The cost of each op of a trace: FLOPs and bytes once per distinct call, and which op of a nest counts.

In a nest of ops (``aten::linear`` around ``aten::addmm`` around a copy) only one level counts:

1. of matrix ops (gemm, convolution, attention, recurrent) the innermost whose cost is known;
2. of the others those whose cost is known and not zero, and that are innermost or launched kernels
   themselves, unless a matrix op that counts encloses them: its cost covers the ops inside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core import perf
from opscope.core.analysis.devices import trace_target
from opscope.core.analysis.linking import ForwardOf, linked_costs
from opscope.core.attribution.attribute import Attribution
from opscope.core.schema import OpCall
from opscope.core.tables.columns import at, gather
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.mapped import let_go

_NO_CALL: Final = OpCall("")


@dataclass(slots=True)
class Costs:
    """The costs of the ops of a trace.

    ``catalogue``: the columns of ``perf.columns``; one row per reading, then one per call that was
    completed from its forward or backward op. ``place``: for each range row its row in the catalogue.
    ``canonical``: for each range row, whether this op counts. ``free``: for each range row, whether this
    op is known to cost nothing (a view, an allocation).
    """

    catalogue: pl.DataFrame
    place: NDArray[np.int32]
    canonical: NDArray[np.bool_]
    free: NDArray[np.bool_]
    _attribution: Attribution

    def cost_owners(self, rows: Ints) -> Ints:
        """Return for each op row the op whose cost its kernels share, or -1 if none is known."""
        found = self._attribution.climb(rows, self.canonical)
        free = (found < 0) & (rows >= 0)
        free[free] = self.free[rows[free]]
        return np.where(free, rows, found)

    def priced(self, rows: Ints) -> NDArray[np.int32]:
        """Return the place in the catalogue of op rows that count or cost nothing; -1 for others."""
        return at(self.place, np.where(self.canonical[rows] | self.free[rows], rows, NONE))


def costs(attribution: Attribution, forward_of: ForwardOf) -> Costs:
    """Return the FLOPs and bytes of every distinct call, and the ops that count.

    ``forward_of`` returns for backward op rows the op row that each differentiates (-1: none).
    """
    meaning = attribution.meaning
    calls = [reading.call or _NO_CALL for reading in meaning.readings]
    target = trace_target(attribution.trace)
    catalogue = perf.columns(calls, target=target)
    catalogue, place = linked_costs(attribution, catalogue, forward_of, target)
    if np.array_equal(place, meaning.reading):
        place = meaning.reading  # no call was completed: share the array to save memory
    known = catalogue["matrix_flops"].is_not_null().to_numpy()
    something = (
        pl.sum_horizontal(
            catalogue[name].fill_null(0)
            for name in ("matrix_flops", "vector_flops", "bytes_read", "bytes_written")
        )
        > 0
    )
    something_known = catalogue.select(something).to_series().to_numpy() & known
    matrix = (
        catalogue["family"].is_in(list(perf.MATRIX_FAMILIES)).fill_null(False).to_numpy() & known
    )
    is_op = attribution.is_op
    let_go()
    canonical = np.zeros(len(is_op), bool)
    rows = np.flatnonzero(is_op & matrix[place])
    canonical[rows] = ~attribution.above(rows)[rows]
    others = np.flatnonzero(is_op & (something_known & ~matrix)[place])
    outside = attribution.climb(others, canonical) == NONE
    others = others[outside]
    canonical[others] = ~attribution.above(np.flatnonzero(canonical))[others]
    others = others[canonical[others]]
    let_go()
    launches = np.zeros(len(canonical), bool)
    for launched in (attribution.kernels, attribution.memops):
        launches[launched.op[launched.op >= 0]] = True
    canonical[others] = launches[others] | ~attribution.above(others)[others]
    free = (known & ~something_known)[place] & is_op
    kept = attribution.kept
    return Costs(catalogue, kept(place), kept(canonical), kept(free), attribution)


class Sharing:
    """Splits the totals of groups over their rows by duration, into integers that sum to the total.

    ``group``: a number per row, -1 for none. ``duration``: ns per row; the total of a group whose
    durations are all 0 is split evenly.
    """

    def __init__(self, group: NDArray[np.signedinteger[Any]], duration: Ints) -> None:
        self._none = group < 0
        rows = _of_several(group)
        self._order = rows[np.argsort(group[rows], kind="stable")]
        ordered = group[self._order]
        self._first = np.concatenate((np.ones(1, bool), ordered[1:] != ordered[:-1]))[: len(rows)]
        begin = np.flatnonzero(self._first)
        counts = np.diff(np.append(begin, len(rows)))
        weight = duration[self._order]
        if len(rows):
            whole = np.repeat(np.add.reduceat(weight, begin), counts)
            weight = np.where(whole > 0, weight, 1)
            whole = np.repeat(np.add.reduceat(weight, begin), counts)
            done = np.cumsum(weight)
            self._done = done - np.repeat(done[begin] - weight[begin], counts)
            self._whole = whole

    def split(self, total: pl.Series) -> pl.Series:
        """Return each row's part of its group's ``total`` (equal within a group); null if that is null."""
        # most ops launch one kernel, which gets the whole total
        column: pl.Series = total.set(pl.Series(self._none), None) if self._none.any() else total
        if not len(self._order):
            return column
        amount = total.gather(self._order).fill_null(NONE).to_numpy()
        # round the running sum: the last row of a group then reaches the total exactly
        upto = np.where(
            self._done == self._whole,
            amount,
            np.rint(amount * (self._done / self._whole)).astype(np.int64),
        )
        part = upto - np.where(self._first, 0, np.roll(upto, 1))
        known = amount >= 0
        return column.scatter(self._order[known], part[known])


def _of_several(group: NDArray[np.signedinteger[Any]]) -> Ints:
    """Return, in order, the rows of the groups with more than one row, by a table of groups, not a sort."""
    rows = np.flatnonzero(group >= 0).astype(np.int32)
    held = group[rows]
    last = np.empty(int(held.max(initial=NONE)) + 1, np.int32)
    last[held] = rows
    several = np.zeros(len(last), bool)
    several[held[last[held] != rows]] = True
    found: Ints = rows[several[held]].astype(np.int64)
    return found


def cost_column(costs: Costs, name: str, rows: NDArray[np.signedinteger[Any]]) -> pl.Series:
    """Return one column of the catalogue for op rows (-1: null)."""
    return gather(costs.catalogue[name], at(costs.place, rows))
