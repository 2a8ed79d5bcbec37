"""Find iterations in a repeating sequence of ops, if neither an optimizer nor a function shows steps.

An op that occurs once in each iteration cuts the sequence; the cuts are iterations if the same ops ran
between nearly all of them. Only outermost ops and layers are examined: a loop inside a layer is not an
iteration.

The repeating part may also be the layers of one pass. A text that names a place (a layer's path, a graph's
node) repeats only with the whole pass; the text of an op (``aten::addmm``) does not show which it is. So the
confidence is the share of the iterations that are alike, times how often they were seen (1 - 2 ** (1 - n)),
times ``UNNAMED`` if no text names a place, and times ``SEVERAL`` if a longer period fits too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opscope.core.tables.intervals import Ints

Weights: TypeAlias = NDArray[np.uint64]
_Codes: TypeAlias = NDArray[np.integer[Any]]

#: Fewer iterations than this do not count as repetition.
LEAST: Final = 3
#: Least share of the iterations that must be alike.
ALIKE: Final = 0.9
#: Least share of the ops that must be in such iterations.
COVERED: Final = 0.5
UNNAMED: Final = 0.6
SEVERAL: Final = 0.8
#: Ops that are tried as the cutting op: this many numbers of occurrences, with this many ops each.
_COUNTS: Final = 16
_EACH: Final = 4
#: Iterations at the begin that may differ: they allocate, compile and choose algorithms.
_WARM: Final = 0.34

TOO_FEW: Final = f"fewer than {2 * LEAST} ops outside any other"
NOT_PERIODIC: Final = "the sequence of ops does not repeat as a whole"
ONE_OP: Final = "one op alone repeats"
#: Other things that the repeating part may be, instead of an iteration.
BY_ORDER: Final = "no text names the place that repeats: it may be the layers of one pass"
LONGER: Final = "a longer sequence repeats too"


@dataclass(frozen=True, slots=True)
class Period:
    """``bounds``: begins of the iterations and the end of the last (ns); ``many``: the number of ops in a
    usual iteration. ``doubt``: possible other meanings; None if the texts name places and no longer period
    fits."""

    bounds: Ints
    confidence: float
    many: int
    doubt: str | None


@dataclass(frozen=True, slots=True)
class _Cut:
    """A cut of the sequence. ``begin``: the places where iterations begin; ``seen``: how many iterations
    are alike."""

    begin: Ints
    last: int
    alike: float
    many: int
    named: bool
    seen: int


def weights(count: int) -> NDArray[np.uint64]:
    """Return distinct large numbers, so that sums distinguish sequences; they are the same in every run
    (splitmix64).

    Loading NumPy's generators would take 7 ms.
    """
    mixed: NDArray[np.uint64] = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(
        0x9E3779B97F4A7C15
    )
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed >>= np.uint64(2)
    return mixed


def period(
    symbol: _Codes, start: Ints, end: Ints, named: NDArray[np.bool_], graph: Ints | None = None
) -> Period | str:
    """Return the iterations of a sequence of ops, or why there are none.

    ``symbol``: per op, in order of ``start`` (ns), a small number that equal texts share. Per number,
    ``named``: whether the text names the place in the program; ``graph``: the graph or compiled function that
    the place is in (-1: none), in which a loop may repeat places.
    """
    if len(symbol) < 2 * LEAST:
        return TOO_FEW
    count = np.bincount(symbol, minlength=len(named))
    if graph is not None:
        named = named & _once_a_run(count, graph)
    weight = weights(len(named))
    total = np.concatenate((np.zeros(1, np.uint64), np.cumsum(weight[symbol])))
    cuts, alone = [], False
    order = np.argsort(symbol, kind="stable")
    of = np.concatenate(([0], np.cumsum(count)))
    for candidate in _candidates(symbol, count, order[of[:-1][count > 0]]):
        cut = _cut(order[of[candidate] : of[candidate + 1]], total, bool(named[candidate]))
        if cut is not None and cut.seen < LEAST:  # leave room: the first and the last may be cut
            cut = _from_the_first_op(cut, symbol, total)
            cut = cut if cut.seen >= LEAST else None
        if cut is not None and cut.many == 1 and not cut.named:
            alone = True
        elif cut is not None:
            cuts.append(cut)
    if not cuts:
        return ONE_OP if alone else NOT_PERIODIC
    best = _from_the_first_op(_best(cuts), symbol, total)
    stops = np.append(best.begin[1:], best.last)
    stop = int(end[best.begin[-1] : stops[-1]].max())
    bounds = np.append(start[best.begin], max(stop, int(start[best.begin[-1]]) + 1))
    seen = len(best.begin)
    confidence = best.alike * (1 - 2.0 ** (1 - seen)) * (1 if best.named else UNNAMED)
    doubts = [] if best.named else [BY_ORDER]
    if any(cut.many > 1.5 * best.many for cut in cuts):
        confidence *= SEVERAL
        doubts.append(LONGER)
    return Period(bounds, confidence, best.many, "; ".join(doubts) or None)


def _once_a_run(count: Ints, graph: Ints) -> NDArray[np.bool_]:
    """Return whether each symbol occurs once per run of its graph: no more often than the graph's rarest one.

    One occurrence more is accepted: it belongs to a run that the trace cut off.
    """
    present = np.flatnonzero((graph >= 0) & (count > 0))
    least = np.full(int(graph.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, graph[present], count[present])
    fits = graph < 0
    fits[present] = count[present] <= least[graph[present]] + 1
    fits[present] &= least[graph[present]] >= LEAST - 1
    return fits


def _candidates(symbol: _Codes, count: Ints, first: Ints) -> list[int]:
    """Return symbols to cut at: for some numbers of occurrences, the symbols that occur first.

    ``first``: the place of each present symbol's first occurrence. An op that occurs once per iteration is
    among the rarest; or, after a set-up with repetitions of its own, it has the most common number of
    occurrences. Both numbers are tried.
    """
    present = symbol[first]
    often = count[present]
    repeats = often >= LEAST
    first, present, often = first[repeats], present[repeats], often[repeats]
    _, index = np.unique(often, return_inverse=True)
    ops = np.bincount(index, weights=often)
    kept = np.argsort(-ops, kind="stable")[:_COUNTS].tolist()
    candidates: list[int] = []
    for number in dict.fromkeys([*range(min(_COUNTS, len(ops))), *kept]):
        mine = np.flatnonzero(index == number)
        mine = mine[np.argsort(first[mine], kind="stable")]
        spread = np.unique(np.linspace(0, len(mine) - 1, _EACH).astype(np.int64))
        candidates.extend(present[mine[spread]].tolist())
    return candidates


def _cut(at: Ints, total: Weights, named: bool) -> _Cut | None:
    """Return the cut at the places ``at``; None if the stretches between them are not alike.

    ``total``: the weights of all ops before each place, added up: equal differences mean the same ops.
    """
    count = len(total) - 1
    length = np.diff(at)
    usual, alike = _mode(np.diff(total[at]))
    if usual is None:
        return None
    steps = np.diff(total[at]) == usual
    size = int(length[np.argmax(steps)])
    # the last iteration is alike if the ops after its begin are the same as in the others
    last = int(at[-1]) + size
    ends_as_usual = _sum(total, int(at[-1]), last) == int(usual)
    steps = np.append(steps, ends_as_usual)
    begin = int(np.argmax(steps))
    if begin > max(2, _WARM * len(steps)):
        return None
    finish = len(steps) - int(np.argmax(steps[::-1]))
    steps = steps[begin:finish]
    alike = float(steps.mean())
    # the parts cut off at the begin and at the end may make up one more
    most = int(steps.sum()) + (not ends_as_usual)
    if most < LEAST or alike < ALIKE or most * size < COVERED * count:
        return None
    # stretches before the first alike one, from the first cut on, were warm-up of the same loop
    last = last if ends_as_usual else int(at[finish])
    return _Cut(at[:finish], last, alike, size, named, int(steps.sum()))


def _mode(signatures: Weights) -> tuple[np.uint64 | None, float]:
    """Return the most frequent signature and its share; None if there are too few."""
    if len(signatures) < LEAST - 1:
        return None, 0.0
    distinct, count = np.unique(signatures, return_counts=True)
    index = int(np.argmax(count))
    return distinct[index], float(count[index] / len(signatures))


def _sum(total: Weights, begin: int, end: int) -> int:
    """Return the weights of the ops from place ``begin`` to before ``end``; -1 past the last op."""
    return -1 if end >= len(total) else (int(total[end]) - int(total[begin])) % (1 << 64)


def _best(cuts: list[_Cut]) -> _Cut:
    """Return the cut that is the iteration: if texts name places, the shortest; else the longest.

    A layer's path does not repeat within a pass, but a periodic evaluation makes a longer period; ops without
    places repeat layer by layer. Among cuts of one length, the one with most iterations is taken.
    """
    named = [cut for cut in cuts if cut.named]
    if named:
        return min(named, key=lambda cut: (cut.many, -len(cut.begin), int(cut.begin[0])))
    return min(cuts, key=lambda cut: (-cut.many, -len(cut.begin), int(cut.begin[0])))


def _from_the_first_op(cut: _Cut, symbol: _Codes, total: Weights) -> _Cut:
    """Return the cut moved back to where the iterations begin: as far as the ops before all cuts are equal.

    An op that occurs once need not be the first of its iteration.
    """
    size = cut.many
    back = cut.begin[:, None] - 1 - np.arange(size)[None, :]
    usual = back[min(1, len(back) - 1)]  # before the first cut there may be other ops
    fits = (symbol[np.maximum(back, 0)] == symbol[usual][None, :]) & (back >= 0)
    equal = (fits.mean(axis=0) >= ALIKE) & fits[0]
    moved = int(np.argmin(np.append(equal, False)))
    begin, last = cut.begin - moved, cut.last - moved
    first = int(np.argmax(np.diff(np.append(begin, last)) == size))
    usual_sum = _sum(total, int(begin[first]), int(begin[first]) + size)
    if _sum(total, last, last + size) == usual_sum:
        begin, last = np.append(begin, last), last + size
        return replace(cut, begin=begin, last=last, seen=cut.seen + 1)
    return replace(cut, begin=begin, last=last)
