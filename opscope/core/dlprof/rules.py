"""DLProf's rules of aggregation: flattened and accumulated time, CPU overhead and GPU idle time.

To *flatten* intervals is to take their union: time in which several of them are open counts once. To
*accumulate* them is to add up their lengths. A group of intervals is the work of one instance of an op;
metrics of instances are accumulated over an op, a type of ops, or the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from opscope.core.tables.intervals import (
    Ints,
    clip,
    merge,
    subtract,
    union_length,
)

Spans = tuple[Ints, Ints]
#: No intervals.
NOTHING: Final[Spans] = (np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Grouped:
    """Per group (ns): the flattened and the accumulated time, and how long its intervals span.

    ``spanned``: from the first start to the last end; all three are 0 for a group without intervals.
    """

    flattened: Ints
    accumulated: Ints
    spanned: Ints

    @property
    def idle(self) -> Ints:
        """The time between a group's first start and last end in which none of its intervals is open."""
        return self.spanned - self.flattened


def grouped_time(group: NDArray[np.integer], start: Ints, end: Ints, count: int) -> Grouped:
    """Return the times of the ``count`` groups 0, 1 … of intervals; rows of a negative group are left out.

    An interval that ends before it starts counts as one of length 0. One sort for all groups.
    """
    flattened, accumulated, spanned = (np.zeros(count, np.int64) for _ in range(3))
    kept = np.flatnonzero(group >= 0)
    if not len(kept):
        return Grouped(flattened, accumulated, spanned)
    order = kept[np.lexsort((start[kept], group[kept]))]
    owner, first = group[order].astype(np.int64), start[order].astype(np.int64)
    last = np.maximum(end[order].astype(np.int64), first)
    np.add.at(accumulated, owner, last - first)
    reach = _running_end(owner, last)
    opens = np.ones(len(owner), bool)
    opens[1:] = owner[1:] != owner[:-1]
    before = np.where(opens, first, np.concatenate((first[:1], reach[:-1])))
    np.add.at(flattened, owner, np.maximum(reach - np.maximum(first, before), 0))
    begin = np.flatnonzero(opens)
    close = np.append(begin[1:], len(owner)) - 1
    spanned[owner[begin]] = reach[close] - first[begin]
    return Grouped(flattened, accumulated, spanned)


def _running_end(owner: Ints, end: Ints) -> Ints:
    """Return for each row the latest end in its group up to this row; rows of a group are adjacent."""
    # groups ascend: a group's number combined with the rank of the end exceeds all values of earlier groups
    rank = np.empty(len(end), np.int64)
    by_end = np.argsort(end, kind="stable")
    rank[by_end] = np.arange(len(end))
    best = np.maximum.accumulate(owner * len(end) + rank) % len(end)
    reach: Ints = end[by_end[best]]
    return reach


def cpu_overhead(cpu: Ints, api: Ints) -> Ints:
    """Return the CPU time (ns) of instances outside the CUDA calls in them; ``api`` is flattened."""
    outside: Ints = np.maximum(cpu - api, 0)
    return outside


@dataclass(frozen=True, slots=True)
class Usage:
    """The use of the wall clock (ns): each instant counts for the first of these that applies."""

    tensor_core: int
    other_kernels: int
    memory: int
    dataloader: int
    io: int
    cpu: int
    other: int


def usage(
    within: Spans,
    tensor_core: Spans,
    other_kernels: Spans,
    memory: Spans,
    dataloader: Spans,
    io: Spans,
    cpu: Spans,
) -> Usage:
    """Return the usage of the time ``within``; its parts add up to the flattened length of ``within``."""
    left = merge(*within)
    lengths: list[int] = []
    for spans in (tensor_core, other_kernels, memory, dataloader, io, cpu):
        rest = subtract(left, merge(*spans))
        lengths.append(_length(left) - _length(rest))
        left = rest
    tensor, kernels, moved, loading, files, on_cpu = lengths
    return Usage(tensor, kernels, moved, loading, files, on_cpu, _length(left))


def busy_share(within: Spans, spans: Spans) -> float | None:
    """Return the share of the time ``within`` in which one of ``spans`` is open; None if ``within`` is
    empty."""
    all_times = merge(*within)
    length = _length(all_times)
    rest = subtract(all_times, merge(*spans))
    return (length - _length(rest)) / length if length else None


def clipped(spans: Spans, within: Spans) -> Spans:
    """Return the parts of ``spans`` inside the disjoint spans ``within``."""
    parts = [clip(spans, int(low), int(high)) for low, high in zip(*within, strict=True)]
    if not parts:
        return NOTHING
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _length(spans: Spans) -> int:
    return union_length(*spans)
