"""Cut the time of units (steps, or whole runs) into disjoint pieces, each of one event, by priority.

A moment belongs to the first class that has an event open then, and within the class to one event: for
simultaneous work the one that began first, for nested events the innermost. So the pieces of a unit and the
rest add up exactly to its length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from opscope.core.analysis.steps.step_times import Spans, covered
from opscope.core.tables.columns import pairs
from opscope.core.tables.intervals import Ints, distinct, merge, nest, subtract


@dataclass(frozen=True, slots=True)
class Events:
    """Events of one class: ``start``, ``end`` (ns). ``label`` returns the labels of the events at some
    places. ``nested``: whether the events enclose each other, like ranges of a thread."""

    start: Ints
    end: Ints
    label: Callable[[Ints], Ints]
    nested: bool = False


@dataclass(frozen=True, slots=True)
class Pieces:
    """Disjoint pieces of units, added up: ``unit``, the place of the class, ``label`` and ``time`` (ns)."""

    unit: Ints
    part: Ints
    label: Ints
    time: Ints


@dataclass(frozen=True, slots=True)
class Cut:
    """The pieces of units that belong to the events of one class: per piece its ``unit``, the ``row`` of
    the event, and ``time`` (ns)."""

    place: int
    events: Events
    unit: Ints
    row: Ints
    time: Ints


def split(classes: Sequence[Events | None], start: Ints, end: Ints) -> tuple[Pieces, Ints]:
    """Return the pieces of the units [start, end) and the rest (ns) of each unit.

    ``classes``: by priority; None is a class of unknown events. Per unit, the pieces and the rest add up to
    its length.
    """
    cuts, rest = cut(classes, start, end)
    return labelled(cuts), rest


def cut(classes: Sequence[Events | None], start: Ints, end: Ints) -> tuple[list[Cut], Ints]:
    """Like ``split``, but without labels."""
    free = merge(start, end)
    rest = (end - start).astype(np.int64)
    cuts: list[Cut] = []
    for index, events in enumerate(classes):
        if events is None or not len(events.start) or not len(free[0]):
            continue
        first, last, row = _disjoint(events, free)
        unit, first, last, row = _in_units(first, last, row, start, end)
        time = covered(free, first, last)
        rows_with_time = np.flatnonzero(time)
        unit, row, time = unit[rows_with_time], row[rows_with_time], time[rows_with_time]
        np.subtract.at(rest, unit, time)
        cuts.append(Cut(index, events, unit, row, time))
        free = subtract(free, merge(events.start, events.end))
    return cuts, rest


def labelled(cuts: Sequence[Cut]) -> Pieces:
    """Return the pieces, each with its label, added up per unit, class and label."""
    return _join(
        [
            _sum(
                cut_of_class.unit,
                cut_of_class.place,
                _label(cut_of_class.events, cut_of_class.row),
                cut_of_class.time,
            )
            for cut_of_class in cuts
        ]
    )


def _label(events: Events, row: Ints) -> Ints:
    """Return the label of each row; the label of each distinct row is computed once."""
    wanted = np.zeros(len(events.start), bool)
    wanted[row] = True
    rows = np.flatnonzero(wanted)
    label = np.zeros(len(events.start), np.int64)
    label[rows] = events.label(rows)
    return label[row]


def _disjoint(events: Events, free: Spans) -> tuple[Ints, Ints, Ints]:
    """Return disjoint intervals in order that cover the part of ``free`` covered by the events, and the
    event of each interval."""
    row = np.flatnonzero(covered(free, events.start, events.end))
    first, last = events.start[row], events.end[row]
    if not events.nested:
        if np.any(first[1:] < first[:-1]):
            order = np.argsort(first, kind="stable")
            row, first, last = row[order], first[order], last[order]
        reach = np.maximum.accumulate(last) if len(last) else last
        first = np.concatenate((first[:1], np.maximum(first[1:], reach[:-1])))
        kept = np.flatnonzero(last > first)
        return first[kept], last[kept], row[kept]
    times = distinct(first, last)
    owner = nest(first, last).innermost(times[:-1])
    owned = np.flatnonzero(owner >= 0)
    return times[owned], times[owned + 1], row[owner[owned]]


def _in_units(
    first: Ints, last: Ints, row: Ints, start: Ints, end: Ints
) -> tuple[Ints, Ints, Ints, Ints]:
    """Return each disjoint interval split at the units, with the unit of each part."""
    low = np.searchsorted(last, start, side="right")
    counts = np.maximum(np.searchsorted(first, end, side="left") - low, 0)
    unit = np.repeat(np.arange(len(start)), counts)
    before = np.repeat(np.cumsum(counts) - counts, counts)
    index = np.arange(len(unit)) - before + low[unit]
    return (
        unit,
        np.maximum(first[index], start[unit]),
        np.minimum(last[index], end[unit]),
        row[index],
    )


def _sum(unit: Ints, place: int, label: Ints, time: Ints) -> Pieces:
    units, other, number = pairs(unit, label)
    total = np.zeros(len(units), np.int64)
    np.add.at(total, number, time)
    return Pieces(units, np.full(len(units), place, np.int64), other, total)


def _join(pieces: list[Pieces]) -> Pieces:
    if not pieces:
        nothing = np.empty(0, np.int64)
        return Pieces(nothing, nothing, nothing, nothing)
    return Pieces(
        np.concatenate([piece.unit for piece in pieces]),
        np.concatenate([piece.part for piece in pieces]),
        np.concatenate([piece.label for piece in pieces]),
        np.concatenate([piece.time for piece in pieces]),
    )
