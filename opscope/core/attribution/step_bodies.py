"""Find where the loop body of each step begins and ends, around the known part of the step, its core.

A core (an optimizer's step with its forward and backward pass, or a call of a compiled function) is not the
whole step: batches are made before it, and results are read after it. The events between two cores are the
tail of one body and the head of the next. The head consists of the events that also come before the first
core; the tail is the rest of what usually lies between two cores. If there is more between two cores, with
forward passes in it, the loop was left, for an evaluation or at the end of an epoch: one step ends with its
tail, the next begins with its head.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opscope.core.tables.intervals import Ints

_Codes: TypeAlias = NDArray[np.integer[Any]]

#: Least share of a body's ops that a stretch must have to count as a forward pass.
LIKE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Events:
    """The outermost events of a thread, by time (ns). ``symbol``: equal for calls of the same thing;
    ``passes``: whether each is a forward pass (a layer, a compiled function); ``away``: whether it is
    certainly outside any step (an evaluation, a checkpoint)."""

    symbol: _Codes
    start: Ints
    end: Ints
    passes: NDArray[np.bool_]
    away: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Cores:
    """The core of each step: events ``first`` to before ``last``; ``begin`` and ``end``: when (ns) it ran.

    ``late``: results may come after the end of a core, for example if the function only launches work; the
    time until the next body then belongs to the step.
    """

    first: Ints
    last: Ints
    end: Ints
    late: bool = False


def bodies(events: Events, cores: Cores) -> tuple[Ints, Ints]:
    """Return when (ns) the body of each core begins and ends; consecutive bodies touch."""
    symbol = events.symbol
    count = len(cores.first)
    gaps = [
        symbol[low:high]
        for low, high in zip(
            [0, *cores.last.tolist()], [*cores.first.tolist(), len(symbol)], strict=True
        )
    ]
    usual = usual_gap(gaps[1:-1])
    lows = [0, *cores.last.tolist()]
    ahead, behind = [], []
    for low, gap in zip(lows, gaps, strict=True):
        away = np.flatnonzero(events.away[low : low + len(gap)])
        first, last = (away[0], away[-1] + 1) if len(away) else (len(gap), 0)
        ahead.append(common(gap[last:][::-1], usual[::-1]))
        behind.append(common(gap[:first], usual))
    left = [
        0 < index < count
        and _is_left(events, cores, index, gap, usual, behind[index], ahead[index])
        for index, gap in enumerate(gaps)
    ]
    evidence = [ahead[index] for index in range(count) if left[index]]
    # if the events begin with a part of the usual sequence, the first body may be cut
    if ahead[0] < len(gaps[0]) or ahead[0] == len(usual):
        evidence.append(ahead[0])
    head = min(evidence, default=len(usual) - behind[-1])
    tail = len(usual) - head
    begin, end = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for index, gap in enumerate(gaps):
        before, after = min(tail, behind[index]), min(head, ahead[index])
        low = lows[index]
        if index in (0, count) or left[index]:
            if index:
                last = low + min(before, len(gap))
                stop = int(cores.end[index - 1])
                end[index - 1] = max(stop, int(events.end[low:last].max(initial=stop)))
            if index < count:
                begin[index] = events.start[int(cores.first[index]) - after]
            continue
        # consecutive steps touch where the tail ends, or where the head begins
        edge = low + len(gap) - after
        tail_ends = max(int(cores.end[index - 1]), int(events.end[low:edge].max(initial=0)))
        head_begins = int(events.start[edge])
        begin[index] = max(tail_ends, head_begins) if cores.late else tail_ends
        end[index - 1] = begin[index]
    return begin, end


def usual_gap(gaps: list[_Codes]) -> _Codes:
    """Return the sequence that most often lies between two cores; the shortest of several."""
    if not gaps:
        return np.empty(0, np.int64)
    often = Counter(gap.tobytes() for gap in gaps)
    return min(gaps, key=lambda gap: (-often[gap.tobytes()], len(gap)))


def common(codes: _Codes, other: _Codes) -> int:
    """Return how many symbols two sequences share at their beginning."""
    size = min(len(codes), len(other))
    return int(np.argmin(np.append(codes[:size] == other[:size], False)))


def _is_left(
    events: Events, cores: Cores, index: int, gap: _Codes, usual: _Codes, behind: int, ahead: int
) -> bool:
    """Return whether the loop was left in a gap: it has more events than usual, with forward passes among
    them."""
    most = len(gap)
    low = int(cores.last[index - 1])
    if events.away[low : low + most].any():
        return True
    if most <= len(usual):
        return False
    more = slice(low + min(behind, most), low + max(most - ahead, min(behind, most)))
    extra = events.symbol[more]
    if not len(extra):
        # the gap begins and ends with the usual sequence; repetitions in between are additional events
        extra = gap
    if events.passes[more].any():
        return True
    body = np.union1d(
        events.symbol[int(cores.first[index - 1]) : int(cores.last[index - 1])], usual
    )
    return len(body) > 1 and len(np.intersect1d(extra, body)) >= LIKE * len(body)
