"""The passes of a training: when each process was in a forward pass, a backward pass or an optimizer's
step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.ops.ops import Ops
from opscope.core.dialects import Reading
from opscope.core.schema import DIRECTIONS
from opscope.core.tables.columns import at
from opscope.core.tables.intervals import NONE, Ints, merge, nest

#: The kinds of passes; a code is a place in this tuple.
PASSES: Final = ("input", "forward", "backward", "optimizer")
INPUT, FORWARD, BACKWARD, OPTIMIZER = range(4)
#: The kind of pass of each direction; the last entry is for no direction.
_CODE: Final = np.array(
    [*(PASSES.index(direction) if direction in PASSES else NONE for direction in DIRECTIONS), NONE]
)
_LONG_AGO: Final = int(np.iinfo(np.int64).min)
#: The names of an optimizer's step in PyTorch's profiler, and of its ranges that are not a step.
_STEP, _ZERO = "Optimizer.step#", "zero_grad"


class Passes:
    """The passes of one process, by start: ``kind`` (codes of PASSES), ``start`` and ``end`` (ns).

    ``threads``: those that ran a part of a pass.
    """

    def __init__(self, kind: Ints, start: Ints, end: Ints, threads: frozenset[int]) -> None:
        order = np.lexsort((-end, start))
        self.kind, self.start, self.end = kind[order], start[order], end[order]
        self.threads = threads
        self._nest = nest(self.start, self.end)

    def at(self, time: Ints) -> Ints:
        """Return the place of the innermost pass at each time (ns), -1 outside any."""
        return self._nest.innermost(time)

    def starts(self, kind: int) -> Ints:
        """Return the starts (ns) of the passes of a kind, in order."""
        times: Ints = self.start[self.kind == kind]
        return times

    def ends(self, kind: int) -> Ints:
        """Return the ends (ns) of the passes of a kind, in order of their starts."""
        times: Ints = self.end[self.kind == kind]
        return times


def passes(ops: Ops) -> Iterator[tuple[int, Passes]]:
    """Yield each process that has passes (-1: unknown), with its passes.

    A pass is marked by a phase range. If a process has no such ranges of a kind: a backward pass is a run of
    outermost backward ops with no forward op between them; an optimizer's step is its range in PyTorch's
    profiler, else a run of outermost ops of that direction; a forward pass is the time from the first op that
    a backward pass differentiates to that pass. A forward pass inside a backward pass recomputes and is part
    of it.
    """
    meaning = ops.attribution.meaning
    both = list(zip(meaning.readings, meaning.texts, strict=True))
    process = ops.attribution.trace["ranges"]["process"].fill_null(NONE).to_numpy()
    mark = np.array([_mark(*pair) for pair in both], np.int64)[meaning.reading]
    code = np.array([_code(*pair) for pair in both], np.int64)[meaning.reading]
    outermost = (ops.attribution.parent < 0) & ((code >= 0) | ops.attribution.is_op)
    outermost &= ~np.array([_ZERO in text[:64] for text in meaning.texts], bool)[meaning.reading]
    for number in np.unique(process[(mark >= 0) | (code >= BACKWARD)]).tolist():
        here = process == number
        rows = np.flatnonzero(here & (mark >= 0))
        yield number, _of_process(ops, rows, mark[rows], np.flatnonzero(here & outermost))


def _of_process(ops: Ops, rows: Ints, mark: Ints, outermost: Ints) -> Passes:
    """``rows``: the ranges that mark a pass, with their kinds ``mark``; ``outermost``: the outermost ops."""
    start, end, thread = _times(ops, rows)
    code = _CODE[ops.direction(outermost).astype(np.int64)]
    first, last, on = _times(ops, outermost)
    forwards = ops.forward_of(outermost[code == BACKWARD])
    inner = np.flatnonzero(np.isin(ops.attribution.parent, outermost[code == BACKWARD]))
    forwards = np.concatenate([forwards, ops.forward_of(inner)])
    began, _, differentiated_on = _times(ops, np.unique(forwards[forwards >= 0]))
    main = set(differentiated_on.tolist()) or set(thread.tolist()) or set(on.tolist())
    counted = (code >= BACKWARD) | ((code >= 0) & np.isin(on, list(main)))
    kind = mark
    for wanted in (BACKWARD, OPTIMIZER):
        if not (mark == wanted).any():
            runs = _runs(first[counted], last[counted], code[counted] == wanted)
            kind, start, end = _with(kind, start, end, wanted, *runs)
    if not (kind == FORWARD).any():
        kind, start, end = _with(kind, start, end, FORWARD, *_forwards(began, kind, start, end))
    low, high = merge(start[kind == BACKWARD], end[kind == BACKWARD])
    index = np.searchsorted(low, start, side="right") - 1
    again = (kind == FORWARD) & (index >= 0) & (end <= at(high, index, NONE))
    threads = {*thread.tolist(), *on[code >= BACKWARD].tolist(), *differentiated_on.tolist()}
    return Passes(kind[~again], start[~again], end[~again], frozenset(threads - {NONE}))


def _with(
    kind: Ints, start: Ints, end: Ints, more: int, low: Ints, high: Ints
) -> tuple[Ints, Ints, Ints]:
    """Return the passes with those of the kind ``more`` from ``low`` to ``high`` (ns) added."""
    kinds = np.concatenate([kind, np.full(len(low), more, np.int64)])
    return kinds, np.concatenate([start, low]), np.concatenate([end, high])


def _runs(start: Ints, end: Ints, mine: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Return start and end (ns) of each run of ``mine``, by time, that no other row interrupts."""
    order = np.argsort(start, kind="stable")
    mine, start, end = mine[order], start[order], end[order]
    edge = np.flatnonzero(np.diff(np.concatenate(([0], mine.astype(np.int8), [0]))))
    if not len(edge):
        return start[:0], end[:0]
    return start[edge[::2]], np.maximum.reduceat(np.append(end, end[-1]), edge)[::2]


def _forwards(began: Ints, kind: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return start and end (ns) of the forward pass of each backward pass.

    ``began``: the starts of the ops that backward passes differentiate. A forward pass begins with the
    first of these after the last pass before the backward pass.
    """
    begins = np.sort(start[kind == BACKWARD])
    stops = np.sort(end[np.isin(kind, (BACKWARD, OPTIMIZER))])
    before = np.searchsorted(stops, begins, side="right") - 1
    since = at(stops, before, _LONG_AGO)
    never = np.iinfo(np.int64).max
    began = np.append(np.sort(began), never)
    opened = began[np.searchsorted(began, since, side="left")]
    real = opened < begins
    return opened[real], begins[real]


def _times(ops: Ops, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """Return start, end (ns) and thread of range rows."""
    ranges = ops.attribution.trace["ranges"]
    start, end, thread = (
        ranges[name].gather(rows).fill_null(NONE).cast(pl.Int64).to_numpy()
        for name in ("start", "end", "thread")
    )
    return start, end, thread


def _mark(reading: Reading, text: str) -> int:
    """Return the kind of pass that a range marks, -1 for none."""
    if _STEP in text[:64]:
        return OPTIMIZER
    return PASSES.index(text) if reading.role == "phase" and text in PASSES else NONE


def _code(reading: Reading, _: str) -> int:
    """Return the kind of pass that a range belongs to by its own text, -1 if it names none."""
    return PASSES.index(reading.direction) if reading.direction in PASSES else NONE
