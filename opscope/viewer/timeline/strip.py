"""A strip: slices of which no two overlap, and exact answers about any window of them.

All times are ns, as in the trace. A strip takes 25 bytes per slice with up to 256 names and 8 categories.
Every answer costs binary searches for the edges of the columns, and examines the few slices beside each edge;
only the longest slice needs each 16th of the window, by ``maximum.reduceat``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from opscope.core.tables.intervals import Ints

__all__ = ["LEVELS", "Strip", "busy_before", "edges_of", "strips_of"]

#: Slices nested deeper than this are in no strip.
LEVELS: Final = 64
#: For every group of 16 slices the longest is stored, its position in the group in four bits.
_GROUP_BITS: Final = 4
_GROUP: Final = 1 << _GROUP_BITS
#: Sums by category are stored once per this many slices.
_BLOCK: Final = 32
#: Up to this many slices per time are added up one by one.
_FEW: Final = 8
#: Slices that are processed together: they stay in the cache.
_PIECE: Final = 1 << 15
#: A shorter duration fits into one number together with a position in a group.
_WITH_PLACE: Final = 1 << (62 - _GROUP_BITS)
#: Float64 adds up a block of slices below this length (39 hours) exactly.
_EXACT: Final = (1 << 53) // _BLOCK
_Codes = NDArray[np.int32]
_Numbers = NDArray[np.integer[Any]]
_Kinds = NDArray[np.uint8]


@dataclass(slots=True)
class Strip:
    """Slices in order. ``before``: for each slice the total time (ns) of the slices before it; the last
    element is the total of all. ``row``: each slice's row in its table; ``name``: its name's number;
    ``kind``: its category. ``kinds``: the categories that occur; ``sums``: ns by category before every
    32nd slice. ``tops``: for every full group of 16 slices a number that orders the groups by their
    longest slice, then by position; ``top_at``: the position of that slice in its group."""

    start: Ints
    before: Ints
    row: _Codes
    name: NDArray[np.unsignedinteger[Any]]
    kind: _Kinds
    kinds: NDArray[np.intp]
    sums: Ints
    tops: NDArray[np.uint64]
    top_at: NDArray[np.uint8]

    @classmethod
    def of(cls, start: Ints, end: Ints, row: _Codes, name: _Numbers, kind: _Kinds) -> Strip:
        """Return the strip of slices that are in order and do not overlap."""
        count = len(start)
        kinds = _kinds_in(kind)
        before = np.zeros(count + 1, np.int64)
        most = np.zeros(count // _GROUP, np.int64)
        top_at = np.zeros(count // _GROUP, np.uint8)
        sums = np.zeros((len(kinds), count // _BLOCK + 1), np.int64)
        for part in _pieces(count):
            lasted = end[part] - start[part]
            here = before[part.start + 1 : part.stop + 1]
            np.cumsum(lasted, out=here)
            here += before[part.start]
            _longest_of_groups(lasted, most[part.start // _GROUP :], top_at[part.start // _GROUP :])
            if len(kinds) > 1:  # else it follows from ``before``
                _sum_blocks(lasted, kind[part], kinds, sums[:, part.start // _BLOCK + 1 :])
        np.cumsum(sums, axis=1, out=sums)
        small = np.min_scalar_type(int(name.max()) if count else 0)
        near = name.astype(small, copy=False)
        return cls(start, before, row, near, kind, kinds, sums, _tops(most), top_at)

    def of_kinds(self, kind: _Kinds) -> Strip:
        """Return the strip of the same slices with other categories."""
        kinds = _kinds_in(kind)
        sums = np.zeros((len(kinds), len(kind) // _BLOCK + 1), np.int64)
        if len(kinds) > 1:
            for part in _pieces(len(kind)):
                lasted = np.diff(self.before[part.start : part.stop + 1])
                _sum_blocks(lasted, kind[part], kinds, sums[:, part.start // _BLOCK + 1 :])
            np.cumsum(sums, axis=1, out=sums)
        return replace(self, kind=kind, kinds=kinds, sums=sums)

    def kept(self, keep: Callable[[NDArray[Any]], NDArray[Any]]) -> Strip:
        """Return the strip with its long columns where ``keep`` puts them."""
        columns = ("start", "before", "row", "name", "kind")
        return replace(self, **{name: keep(getattr(self, name)) for name in columns})

    def __len__(self) -> int:
        return len(self.start)

    def lasted(self, rows: Any) -> Any:
        """Return the durations (ns) of slices, given as one number or an array of them."""
        return self.before[rows + 1] - self.before[rows]

    def part(self, low: int, high: int) -> tuple[int, int]:
        """Return the first slice that overlaps ``[low, high)``, and the one after the last; a slice of
        length 0 overlaps if it begins there."""
        first, last = np.searchsorted(self.start, np.array([low, high])).tolist()
        if first and self.start[first - 1] + self.lasted(first - 1) > low:
            first -= 1
        return first, max(first, last)

    def busy(self, times: Ints) -> Ints:
        """Return for each time the total ns of slices before it."""
        return busy_before(self.start, self.before, times)

    def busy_by_kind(self, times: Ints) -> Ints:
        """Return for each category of ``kinds`` (rows) and ascending time (columns) the ns of slices
        before it, up to a constant per category."""
        sums_by_kind = np.zeros((len(self.kinds), len(times)), np.int64)
        if not len(self):
            return sums_by_kind
        index = np.searchsorted(self.start, times, side="right") - 1
        here = np.maximum(index, 0)
        if len(self.kinds) == 1:
            sums_by_kind[0] = self.busy(times)
            return sums_by_kind
        place_of = np.zeros(256, np.intp)
        place_of[self.kinds] = np.arange(len(self.kinds))
        if here[-1] - here[0] < _FEW * len(times):
            return self._few_by_kind(times, index, place_of)
        block = here // _BLOCK
        sums_by_kind[:] = self.sums[:, block]
        # the slices between the head of the block and this one, and the elapsed part of this one
        counts = here - block * _BLOCK + 1
        counts[index < 0] = 0
        owner = np.repeat(np.arange(len(times)), counts)
        rows = _spans(block * _BLOCK, counts)
        length = np.minimum(self.lasted(rows), times[owner] - self.start[rows])
        cell = place_of[self.kind[rows]] * len(times) + owner
        # then float64 adds up exactly, in a fifth of the time
        if len(length) and length.max() < _EXACT:
            sums_by_kind += (
                np.bincount(cell, length, sums_by_kind.size)
                .astype(np.int64)
                .reshape(sums_by_kind.shape)
            )
        else:
            np.add.at(sums_by_kind.reshape(-1), cell, length)
        return sums_by_kind

    def _few_by_kind(
        self, times: Ints, index: NDArray[np.intp], place_of: NDArray[np.intp]
    ) -> Ints:
        """``busy_by_kind`` for few slices. ``index``: the last that began before each time, -1 for none."""
        first, last = max(int(index[0]), 0), max(int(index[-1]), 0)
        kind = place_of[self.kind[first : last + 1]]
        lasted = np.diff(self.before[first : last + 2])
        sums = np.zeros((len(self.kinds), len(kind)), np.int64)
        sums[kind[:-1], np.arange(1, len(kind))] = lasted[:-1]
        here = np.maximum(index - first, 0)
        sums_by_kind: Ints = np.cumsum(sums, axis=1)[:, here]
        begun = np.minimum(times - self.start[first : last + 1][here], lasted[here])
        sums_by_kind[kind[here], np.arange(len(times))] += np.where(index >= 0, begun, 0)
        return sums_by_kind

    def longest(self, edges: Ints) -> _Codes:
        """Return for each column between two edges the longest slice that overlaps it, -1 for none; of
        equally long ones the last."""
        columns = len(edges) - 1
        best = np.full(columns, -1, np.int64)
        if not len(self):
            return best.astype(np.int32)
        first = np.searchsorted(self.start, edges)
        low, high = first[:-1], first[1:]
        filled = np.flatnonzero(high > low)
        if len(filled):
            best[filled] = self._longest(low[filled], high[filled])
        # the slice that was running at the column's edge may be longer than any that begins in the column
        around = np.maximum(low - 1, 0)
        runs = (low > 0) & (self.start[around] + self.lasted(around) > edges[:-1])
        runs &= edges[1:] > edges[:-1]
        longer = self.lasted(around) > np.where(best >= 0, self.lasted(np.maximum(best, 0)), -1)
        best = np.where(runs & longer, around, best)
        return best.astype(np.int32)

    def _longest(self, low: Ints, high: Ints) -> Ints:
        """Return, for each pair, the longest of the slices ``[low, high)``, the last of equal ones; no
        pair is empty."""
        # full groups are represented by their longest slice; slices before and after them are
        # compared one by one
        first, after = -(-low // _GROUP), high // _GROUP
        grouped = after > first
        head = np.where(grouped, first * _GROUP, high) - low
        tail = np.where(grouped, high - after * _GROUP, 0)
        counts = head + grouped + tail
        begin = np.cumsum(counts) - counts
        rows = np.empty(int(counts.sum()), np.int64)
        rows[_spans(begin, head)] = _spans(low, head)
        rows[_spans(begin + head + grouped, tail)] = _spans(high - tail, tail)
        which = np.flatnonzero(grouped)
        if len(which):
            # reduceat yields the groups of a pair at even positions, and the groups between pairs at odd ones
            bounds = np.stack((first[which], after[which]), axis=1).reshape(-1)
            bounds = bounds[:-1] if bounds[-1] == len(self.tops) else bounds
            top = np.maximum.reduceat(self.tops, bounds)[::2]
            group = (top & np.uint64(_mask(len(self.tops)))).astype(np.int64)
            rows[(begin + head)[which]] = group * _GROUP + self.top_at[group]
        lasted = self.lasted(rows)
        most = np.maximum.reduceat(lasted, begin)
        places = np.where(lasted == np.repeat(most, counts), np.arange(len(rows)), -1)
        best: Ints = np.maximum.reduceat(places, begin)
        return rows.take(best)


def _spans(begin: Ints, ints: Ints) -> Ints:
    """Return ``begin``, ``begin + 1`` … for each pair, ``ints`` numbers each, one pair after the other."""
    places: Ints = np.repeat(begin - (np.cumsum(ints) - ints), ints)
    places += np.arange(len(places))
    return places


def _mask(groups: int) -> int:
    """Return the bits that hold a group's number."""
    return (1 << max(1, groups).bit_length()) - 1


def _pieces(count: int) -> Iterator[slice]:
    """Yield pieces of slices that stay in the cache; each but the last consists of complete blocks."""
    for low in range(0, count, _PIECE):
        yield slice(low, min(low + _PIECE, count))


def _kinds_in(kind: _Kinds) -> NDArray[np.intp]:
    """Return the categories that occur, in order."""
    seen = np.zeros(256, bool)
    for part in _pieces(len(kind)):
        seen[kind[part]] = True
    return np.flatnonzero(seen)


def _longest_of_groups(lasted: Ints, most: Ints, at: NDArray[np.uint8]) -> None:
    """Write the longest duration of every full group, and the position of the last slice that has it."""
    groups = len(lasted) // _GROUP
    lengths = lasted[: groups * _GROUP].reshape(groups, _GROUP)
    if groups and int(lengths.max()) < _WITH_PLACE:  # one number holds duration and group
        placed = (lengths << _GROUP_BITS) | np.arange(_GROUP)
        best = placed.max(axis=1)
        np.right_shift(best, _GROUP_BITS, out=most[:groups])
        at[:groups] = best & (_GROUP - 1)
        return
    for position in range(_GROUP):  # of equally long ones the last
        here = lengths[:, position]
        later = here >= most[:groups]
        np.maximum(most[:groups], here, out=most[:groups])
        at[:groups][later] = position


def _tops(most: Ints) -> NDArray[np.uint64]:
    """Return ``tops`` of a Strip from the longest durations of its groups."""
    mask = _mask(len(most))
    if len(most) and int(most.max()) >> (64 - mask.bit_length()):
        # durations are too long for one number with the group's number: use their ranks instead
        most = np.unique(most, return_inverse=True)[1].reshape(-1).astype(np.int64)
    tops: NDArray[np.uint64] = most.astype(np.uint64) << np.uint64(mask.bit_length())
    tops |= np.arange(len(most), dtype=np.uint64)
    return tops


def busy_before(start: Ints, before: Ints, times: Ints) -> Ints:
    """Return for each time the ns before it that disjoint intervals cover; ``before`` as in a Strip."""
    if not len(start):
        return np.zeros(len(times), np.int64)
    index = np.searchsorted(start, times, side="right") - 1
    here = np.maximum(index, 0)
    inside = np.minimum(times - start[here], before[here + 1] - before[here])
    return np.where(index >= 0, before[here] + inside, 0)


def edges_of(low: int, high: int, columns: int) -> Ints:
    """Return the ``columns + 1`` edges of equal columns, in whole ns, without overflow."""
    quotient, rest = divmod(high - low, columns)
    index = np.arange(columns + 1, dtype=np.int64)
    return low + quotient * index + rest * index // columns


def _sum_blocks(lasted: Ints, kind: _Kinds, kinds: NDArray[np.intp], sums: Ints) -> None:
    """Write for each of ``kinds`` (rows) the ns of its slices in every full block (columns)."""
    blocks = len(lasted) // _BLOCK
    lasted, kind = lasted[: blocks * _BLOCK], kind[: blocks * _BLOCK]
    if not blocks:
        return
    index_of_kind = np.zeros(256, np.intp)
    index_of_kind[kinds] = np.arange(len(kinds))
    cell = index_of_kind.take(kind).reshape(blocks, _BLOCK)
    cell += np.arange(0, blocks * len(kinds), len(kinds))[:, None]
    cell_count = blocks * len(kinds)
    if lasted.max() < _EXACT:
        cells = np.bincount(cell.reshape(-1), weights=lasted, minlength=cell_count)
    else:
        cells = np.zeros(cell_count, np.int64)
        np.add.at(cells, cell.reshape(-1), lasted)
    sums[:, :blocks] = cells.reshape(blocks, len(kinds)).T


def strips_of(
    start: Ints, end: Ints, row: _Codes, name: _Numbers, kind: _Kinds
) -> tuple[list[Strip], Ints]:
    """Return the slices of a lane (any order, overlaps included) as strips, outer before inner, and the
    positions of slices more than ``LEVELS`` deep. A slice that begins while another of the strip runs goes to
    the next strip, so nested slices are placed by depth."""
    if len(start) and _in_order(start, end):
        return [Strip.of(start, end, row, name, kind)], np.zeros(0, np.int64)
    if any(np.any(end[part] < start[part]) for part in _pieces(len(start))):
        end = np.maximum(start, end)
    order = None
    if _unordered(start, end):
        order = np.lexsort((start - end, start))  # of slices that begin together the longest first
        start, end = start[order], end[order]
        row, name, kind = row[order], name[order], kind[order]
    strips: list[Strip] = []
    rest = np.arange(len(start), dtype=np.min_scalar_type(len(start)))
    for _ in range(LEVELS):
        if not len(rest):
            break
        kept = _keep(start if not strips else start[rest], end if not strips else end[rest])
        if kept is None and not strips:
            return [Strip.of(start, end, row, name, kind)], np.zeros(0, np.int64)
        here, rest = (rest, rest[:0]) if kept is None else (rest[kept], rest[~kept])
        strips.append(Strip.of(start[here], end[here], row[here], name[here], kind[here]))
    return strips, rest.astype(np.int64) if order is None else order[rest]


def _in_order(start: Ints, end: Ints) -> bool:
    """Whether each slice begins after the start and not before the end of the previous one, and no
    length is negative."""
    last = int(start[0]) - 1
    for part in _pieces(len(start)):
        first, after = start[part], end[part]
        if first[0] <= last or np.any(after < first):
            return False
        free = np.maximum(after, first + 1)
        if np.any(first[1:] < free[:-1]):
            return False
        last = int(free[-1]) - 1
    return True


def _unordered(start: Ints, end: Ints) -> bool:
    before, after = start[:-1], start[1:]
    if np.any(after < before):
        return True
    tied = np.flatnonzero(after == before)
    return bool(np.any(end[tied + 1] > end[tied]))


def _is_chain(start: Ints, end: Ints, marked: NDArray[np.bool_]) -> bool:
    """Whether the successor of each marked slice is marked."""
    places = np.flatnonzero(marked[:-1])
    for part in _pieces(len(places)):
        here = places[part]
        after = np.maximum(np.searchsorted(start, end[here]), here + 1)
        if not marked[after].all():
            return False
    return True


def _keep(start: Ints, end: Ints) -> NDArray[np.bool_] | None:
    """Return which slices one strip takes: the first slice, then always the next one that begins after the
    last one taken has ended. None if the strip takes all.

    Each slice's successor is known by a binary search; the chain of successors is followed by doubling.
    """
    count = len(start)
    marked = np.ones(count + 1, bool)
    last = int(start[0])
    for part in _pieces(count):
        ended = np.maximum.accumulate(end[part])
        np.maximum(ended, last, out=ended)
        marked[part.start] = start[part.start] >= last
        np.greater_equal(start[part][1:], ended[:-1], out=marked[part.start + 1 : part.stop])
        last = int(ended[-1])
    if marked.all():
        return None
    # this is so if slices nest, because the other slices then lie inside those taken
    if _is_chain(start, end, marked):
        return marked[:-1]
    jump = np.maximum(np.searchsorted(start, end), np.arange(1, count + 1))
    jump = np.append(jump, count)
    while True:
        target = jump[np.flatnonzero(marked)]
        fresh = target[~marked[target]]
        if not len(fresh):
            return marked[:-1]
        marked[fresh] = True
        jump = jump[jump]
