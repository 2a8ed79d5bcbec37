"""The cost of each op of a trace: FLOPs and bytes, computed once per distinct call, and which op of a nest
counts.

In a nest of ops (``aten::linear`` around ``aten::addmm`` around a copy) only one level counts, and its cost
covers the ops inside it:

1. of PyTorch's operators that run on the CPU the outermost whose cost is known and not zero and that is a
   kernel of its own (``levels``): the level that a dispatch mode sees, where ``x + 1.0`` and the exponential
   of a matrix are one op, whatever its kernel calls;
2. of the other matrix ops (gemm, convolution, attention, recurrent) the innermost whose cost is known;
3. of the others those with such a cost that launched kernels themselves;
4. of the rest (composite operators, autograd nodes, calls of an API) the innermost with such a cost.

Runs with fake tensors compute nothing and cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core import perf
from opscope.core.analysis.ops.levels import (
    Names,
    composites,
    fake_runs,
    idle_calls,
    kernels_of_their_own,
    only_calls_ops,
)
from opscope.core.analysis.ops.linking import ForwardOf, linked_costs
from opscope.core.attribution.attribute import Attribution
from opscope.core.perf.devices.of_trace import trace_target
from opscope.core.schema import OpCall
from opscope.core.tables.columns import at, gather, pieces
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.mapped import Mapped, zeros

_NO_CALL: Final = OpCall("")


@dataclass(slots=True)
class Costs:
    """The costs of the ops of a trace.

    ``catalogue``: the columns of ``perf.columns``; one row per reading, then one per call that was completed
    from its forward or backward op. ``place``: for each range row its row in the catalogue. ``canonical``:
    for each range row, whether this op counts. ``free``: for each range row, whether this op is known to cost
    nothing (a view, an allocation, a run with fake tensors). ``around``: for each range row, whether the op's
    known cost is counted at the ops inside it.
    """

    catalogue: pl.DataFrame
    place: NDArray[np.int32]
    canonical: NDArray[np.bool_]
    free: NDArray[np.bool_]
    around: NDArray[np.bool_]
    _attribution: Attribution

    def cost_owners(self, rows: Ints) -> Ints:
        """Return for each op row the op whose cost its kernels share, or -1 if none is known."""
        owner = self._attribution.climb(rows, self.canonical)
        free = (owner < 0) & (rows >= 0)
        free[free] = self.free[rows[free]]
        return np.where(free, rows, owner)

    def sources(self, rows: Ints) -> Ints:
        """Return for each op row the op that has the known cost of its own work, or -1: ``cost_owners``,
        or the op itself if its known cost is counted at the ops inside it."""
        found = self.cost_owners(rows)
        return np.where((found < 0) & self.around[rows], rows, found)

    def sized(self, sources: Ints) -> pl.Series:
        """Return for each of the ``sources`` whether its bytes are known, from the op itself or from the ops
        inside it."""
        known: pl.Series = cost_column(self, "bytes", sources).is_not_null()
        return known | pl.Series((sources >= 0) & self.around[sources])

    def counted(self, rows: Ints) -> pl.Series:
        """Return which of these op rows count with a known cost that is not zero."""
        known = _is_known(self.catalogue)[self.place[rows]]
        return pl.Series(self.canonical[rows] & known)

    def priced(self, rows: Ints) -> NDArray[np.int32]:
        """Return the place in the catalogue of op rows whose cost counts or is zero; -1 for others."""
        return at(self.place, np.where(self.canonical[rows] | self.free[rows], rows, NONE))


def _is_known(catalogue: pl.DataFrame) -> NDArray[np.bool_]:
    """Return per row of a catalogue whether its cost is known and not zero; for a copy of unknown size,
    whether its FLOPs (zero) are known."""
    parts = ("matrix_flops", "vector_flops", "bytes_read", "bytes_written")
    something = pl.sum_horizontal(pl.col(name).fill_null(0) for name in parts) > 0
    flags: NDArray[np.bool_] = (
        catalogue.select(something & pl.col("matrix_flops").is_not_null()).to_series().to_numpy()
    )
    return flags


def costs(
    attribution: Attribution, forward_of: ForwardOf, served: Callable[[], pl.DataFrame]
) -> Costs:
    """Return the FLOPs and bytes of every distinct call, and the ops that count.

    ``forward_of`` returns for backward op rows the op row that each differentiates (-1: none), ``served``
    the steps that a server names.
    """
    meaning = attribution.meaning
    calls = [reading.call or _NO_CALL for reading in meaning.readings]
    target = trace_target(attribution.trace)
    catalogue = perf.columns(calls, target=target)
    catalogue, place = linked_costs(attribution, catalogue, forward_of, target, served)
    if np.array_equal(place, meaning.reading):
        place = meaning.reading  # no call was completed: share the array to save memory
    launches = zeros(attribution.mapped, len(attribution.is_op), bool)
    for launched in (attribution.kernels, attribution.memops):
        for part in pieces(len(launched.op)):
            launches[launched.op[part][launched.op[part] >= 0]] = True
    names = Names(attribution)
    idle = fake_runs(names), idle_calls(names, launches)
    catalogue, place = _without_work(catalogue, place, [rows for rows in idle if len(rows)])
    is_priced = catalogue["matrix_flops"].is_not_null().to_numpy()
    something_known = _is_known(catalogue)
    matrix = (
        catalogue["family"].is_in(list(perf.MATRIX_FAMILIES)).fill_null(False).to_numpy()
        & is_priced
    )
    is_op, mapped = attribution.is_op, attribution.mapped
    count = len(is_op)
    canonical, others, free, around = (zeros(mapped, count, bool) for _ in range(4))
    sized = catalogue.select(pl.sum_horizontal("bytes_read", "bytes_written", ignore_nulls=False))
    is_sized = sized.to_series().is_not_null().to_numpy()
    # numbers of the default dtype: their op does not record the dtype, but the inner op does
    leaves = catalogue["family"].is_in(["random", "fill"]).fill_null(False).to_numpy() & ~is_sized
    # a copy of no elements, or of unknown size, counts as one op, and nothing inside it counts
    moves = ~catalogue["family"].is_in([*perf.NO_MOVES, "communication"]).fill_null(True).to_numpy()
    whole = is_priced & moves & ~leaves
    computes = something_known & (catalogue["flops"].fill_null(0) > 0).to_numpy()
    for part in pieces(count):
        free[part] = is_op[part] & (is_priced & ~something_known)[place[part]]
        others[part] = is_op[part] & (something_known | whole)[place[part]]
    priced = zeros(mapped, count, bool)
    for part in pieces(count):
        priced[part] = is_op[part] & something_known[place[part]]
    for part in pieces(count):  # the cost of an op covers the ops inside it
        rows = part.start + np.flatnonzero(others[part] & ~priced[part])
        above = at(attribution.parent, rows).astype(np.int64)
        others[rows] = attribution.climb(above, priced) == NONE
    outer = others
    if leaves.any():
        outer = others & ~(leaves[place] & attribution.above(others & is_sized[place]))
    outer = kernels_of_their_own(names, outer, launches)
    for part in pieces(count):
        rows = part.start + np.flatnonzero(others[part] & ~outer[part] & ~launches[part])
        others[rows] = attribution.climb(rows, outer) == NONE
        rows = part.start + np.flatnonzero(is_op[part] & matrix[place[part]])
        canonical[rows] = outer[rows] | (attribution.climb(rows, outer) == NONE)
    _clear(canonical, composites(names, outer & computes[place]))
    enclosing = attribution.above(canonical)
    _clear(canonical, enclosing)
    for part in pieces(count):
        rows = part.start + np.flatnonzero(others[part])
        others[rows] = ~matrix[place[rows]] & (something_known[place[rows]] | outer[rows])
        others[rows] &= attribution.climb(rows, canonical) == NONE
    _clear(others, enclosing)
    enclosing = attribution.above(others)
    for part in pieces(count):
        canonical[part] |= others[part] & (outer[part] | launches[part] | ~enclosing[part])
    enclosing = attribution.above(canonical)
    passing = is_priced.copy()
    passing[: len(calls)] |= only_calls_ops(names)
    for part in pieces(count):
        around[part] = is_op[part] & passing[place[part]] & enclosing[part] & ~canonical[part]
    return Costs(catalogue, attribution.kept(place), canonical, free, around, attribution)


def _without_work(
    catalogue: pl.DataFrame, place: NDArray[np.int32], idle: list[Ints]
) -> tuple[pl.DataFrame, NDArray[np.int32]]:
    """Return the catalogue with a row for a call that costs nothing added, and the places where ``idle``
    rows refer to it."""
    if not idle:
        return catalogue, place
    place = place.copy()
    for rows in idle:
        place[rows] = len(catalogue)
    return pl.concat([catalogue, perf.no_work()]), place


def _clear(flags: NDArray[np.bool_], where: NDArray[np.bool_]) -> None:
    for part in pieces(len(flags)):
        flags[part] &= ~where[part]


class Sharing:
    """Splits the totals of groups over their rows by duration, into integers that sum to the total.

    ``group``: a number per row, -1 for none. ``duration``: ns per row; if all durations of a group are 0, its
    total is split evenly.
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
            total = np.repeat(np.add.reduceat(weight, begin), counts)
            weight = np.where(total > 0, weight, 1)
            total = np.repeat(np.add.reduceat(weight, begin), counts)
            done = np.cumsum(weight)
            self._done = done - np.repeat(done[begin] - weight[begin], counts)
            self._whole = total

    def split(self, total: pl.Series) -> pl.Series:
        """Return each row's part of its group's ``total`` (equal within a group); null if that is null.

        The result may be ``total`` itself, changed: a copy of ten million takes 80 MB.
        """
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
        is_stated = amount >= 0
        return column.scatter(self._order[is_stated], part[is_stated])


class Shares:
    """Splits the totals of groups over selected rows by duration, as ``Sharing`` does over all rows. It
    keeps the cumulative time by row and group in mapped files."""

    def __init__(
        self,
        group: NDArray[np.signedinteger[Any]],
        start: pl.Series,
        end: pl.Series,
        mapped: Mapped | None = None,
    ) -> None:
        """``group``: a number per row, -1 for none. ``start``, ``end``: ns per row."""
        self._group, self._start, self._end = group, start, end
        group_count = 1 + max(int(group[part].max(initial=NONE)) for part in pieces(len(group)))
        self._many = zeros(mapped, group_count, np.int32)
        for part in pieces(len(group)):
            groups = group[part]
            groups, count = np.unique(groups[groups >= 0], return_counts=True)
            self._many[groups] += count.astype(np.int32)
        self._several = any((self._many[part] > 1).any() for part in pieces(group_count))
        if not self._several:
            return
        self._whole, so_far = (
            zeros(mapped, group_count, np.int64),
            zeros(mapped, group_count, np.int32),
        )
        self._upto, self._place = (zeros(mapped, len(group), kind) for kind in (np.int64, np.int32))
        for part in pieces(len(group)):
            rows = part.start + np.flatnonzero(group[part] >= 0)
            rows = rows[self._many[group[rows]] > 1]
            if not len(rows):
                continue
            rows = rows[np.argsort(group[rows], kind="stable")]
            of = group[rows]
            begin = np.flatnonzero(np.concatenate((np.ones(1, bool), of[1:] != of[:-1])))
            counts = np.diff(np.append(begin, len(of)))
            for values, total, by_row in (
                (self._duration(rows), self._whole, self._upto),
                (np.ones(len(rows), np.int64), so_far, self._place),
            ):
                running = np.cumsum(values)
                running += np.repeat(total[of[begin]] - (running - values)[begin], counts)
                by_row[rows] = running
                total[of[begin]] = running[begin + counts - 1]

    def _duration(self, rows: Ints) -> Ints:
        took: Ints = (self._end.gather(rows) - self._start.gather(rows)).to_numpy()
        return took

    def split(self, rows: Ints, total: pl.Series) -> pl.Series:
        """Return the shares of ``rows`` in their groups' ``total`` (equal within a group); null if the
        total is null."""
        group = self._group[rows]
        none = group < 0
        column: pl.Series = total.set(pl.Series(none), None) if none.any() else total
        if not self._several:
            return column
        here = np.flatnonzero(~none)
        here = here[self._many[group[here]] > 1]
        amount = total.gather(here).fill_null(NONE).to_numpy()
        here, amount = here[amount >= 0], amount[amount >= 0]
        if not len(here):
            return column
        some, of = rows[here], group[here]
        whole, upto, took = self._whole[of], self._upto[some], self._duration(some)
        even = whole == 0
        whole = np.where(even, self._many[of], whole)
        upto = np.where(even, self._place[some], upto)
        took = np.where(even, 1, took)
        # differences of rounded cumulative sums: the last row reaches the total exactly
        reached, before = (_round(amount, done, whole) for done in (upto, upto - took))
        changed: pl.Series = column.clone().scatter(here, reached - before)  # in place
        return changed


def _round(amount: Ints, done: Ints, ints: Ints) -> Ints:
    exact = np.rint(amount * (done / ints)).astype(np.int64)
    rounded: Ints = np.where(done == ints, amount, exact)
    return rounded


def _of_several(group: NDArray[np.signedinteger[Any]]) -> Ints:
    """Return, in order, the rows of the groups with more than one row, by a table of groups, not a sort."""
    rows = np.flatnonzero(group >= 0).astype(np.int32)
    group_of_row = group[rows]
    last = np.empty(int(group_of_row.max(initial=NONE)) + 1, np.int32)
    last[group_of_row] = rows
    several = np.zeros(len(last), bool)
    several[group_of_row[last[group_of_row] != rows]] = True
    last_rows: Ints = rows[several[group_of_row]].astype(np.int64)
    return last_rows


def cost_column(costs: Costs, name: str, rows: NDArray[np.signedinteger[Any]]) -> pl.Series:
    """Return one column of the catalogue for op rows (-1: null)."""
    return gather(costs.catalogue[name], at(costs.place, rows))
