"""Read an XSpace (``.xplane.pb``) as planes of event columns.

Field numbers are those of tsl/profiler/protobuf/xplane.proto. A space has planes; a plane has lines and
tables of names; a line has events; an event has a number in the table, an offset, a duration and statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.hlo.wire import (
    FIXED64,
    LENGTH,
    VARINT,
    Fields,
    WireError,
    fields,
    number,
    spans,
    text,
)
from opscope.core.tables.intervals import Ints

from .wire import Bytes, entries, passes, texts

#: Events decoded at a time; each takes some 200 bytes meanwhile.
BATCH: Final = 1 << 20
#: Largest number of names in a table; a file with more is not a trace.
MAX_NAMES: Final = 1 << 22
#: Marks an impossible time, ns; it stays impossible when a line's time is added.
FAR: Final = 1 << 62
#: A tree of annotations, with a statistic for each annotation ever pushed; it is not read.
_SCOPES: Final = "/host:__ScopeRangeCallStack__"
#: The field numbers of a statistic's value, by type.
_DOUBLE, _UNSIGNED, _SIGNED, _TEXT, _BYTES, _REFERENCE = range(2, 8)


@dataclass(slots=True)
class Event:
    """A row of a plane's table of events: what all events with one number have in common."""

    name: str
    stats: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Line:
    """A thread or a stream. ``time`` is the origin of its events' offsets, ns."""

    number: int
    name: str
    time: int
    starts: Ints
    ends: Ints


@dataclass(slots=True)
class Plane:
    """A device, the host, or a table of programs."""

    name: str
    events: dict[int, Event]
    stat_names: dict[int, str]
    stats: dict[str, object]
    lines: list[Line]


@dataclass(slots=True)
class Events:
    """A batch of events of one line: numbers in the table, times in ns from the line's time, statistics.

    ``stats``: the values of each statistic by its name (Int64, Float64 or String), a row per event.
    """

    number: Ints
    start: Ints
    end: Ints
    stats: dict[str, pl.Series]


class Space:
    """The bytes of one file. Raises WireError if they are not an XSpace."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.array: Bytes = np.frombuffer(data, np.uint8)
        message = fields(data, 0, len(data))
        self._planes = spans(message, 1)
        self.errors = [data[slice(*span)].decode("utf-8", "replace") for span in spans(message, 2)]
        self.warnings = [
            data[slice(*span)].decode("utf-8", "replace") for span in spans(message, 3)
        ]
        self.hosts = [data[slice(*span)].decode("utf-8", "replace") for span in spans(message, 4)]

    def planes(self) -> Iterator[Plane]:
        """Yield the planes, with events that are not decoded yet."""
        for start, end in self._planes:
            yield self._plane(start, end)

    def _plane(self, start: int, end: int) -> Plane:
        data = self.data
        message = fields(data, start, end)
        names: dict[int, str] = {}
        if text(data, message, 2) == _SCOPES:
            return Plane(_SCOPES, {}, names, {}, [])
        for entry in _entries(data, message, 5):
            names[number(entry, 1)] = text(data, entry, 2)
        stats = _stats(data, message, 6, names)
        events = {}
        for entry in _entries(data, message, 4):
            shown = text(data, entry, 4)
            name = text(data, entry, 2) or shown
            events[number(entry, 1)] = Event(name, _stats(data, entry, 5, names))
        lines = [self._line(*span) for span in spans(message, 3)]
        return Plane(text(data, message, 2), events, names, stats, lines)

    def _line(self, start: int, end: int) -> Line:
        starts, ends, others = entries(self.data, start, end, 4)
        fields = {field_number: (value, size) for field_number, value, size in others}

        def name(field_number: int) -> str:
            at, size = fields.get(field_number, (0, 0))
            return self.data[at : at + size].decode("utf-8", "replace")

        line_number, time = _signed(fields.get(1, (0, 0))[0]), _signed(fields.get(3, (0, 0))[0])
        return Line(
            line_number, name(11) or name(2), time if abs(time) < FAR // 2 else FAR, starts, ends
        )

    def batches(self, plane: Plane, line: Line, wanted: frozenset[str]) -> Iterator[Events]:
        """Yield the line's events in batches, with the ``wanted`` statistics."""
        for first in range(0, len(line.starts), BATCH):
            part = slice(first, first + BATCH)
            yield self._events(plane, line.starts[part], line.ends[part], wanted)

    def _events(self, plane: Plane, start: Ints, end: Ints, wanted: frozenset[str]) -> Events:
        count = len(start)
        columns = {field_number: np.zeros(count, np.int64) for field_number in (1, 2, 3)}
        rows: list[Ints] = []
        begins: list[Ints] = []
        sizes: list[Ints] = []
        for pass_ in passes(self.array, start, end):
            for field_number, column in columns.items():
                hit = pass_.of(field_number, VARINT)
                column[pass_.row[hit]] = pass_.value[hit].view(np.int64)
            hit = pass_.of(4, LENGTH)
            rows.append(pass_.row[hit])
            begins.append(pass_.value[hit].astype(np.int64))
            sizes.append(pass_.size[hit])
        offset, duration = columns[2], columns[3]
        stats = {}
        if wanted and rows:
            begin = np.concatenate(begins)
            stats = self._columns(
                plane, count, np.concatenate(rows), begin, begin + np.concatenate(sizes), wanted
            )
        # within 62 bits both add up; ``sound`` drops and counts times beyond, and times far from any other
        far = (np.abs(offset) > 1 << 62) | (offset == -(1 << 63)) | (np.abs(duration) > 1 << 62)
        offset[far], duration[far] = 0, 0
        begun, ended = offset // 1000, (offset + duration) // 1000
        begun[far] = ended[far] = FAR
        return Events(columns[1], begun, ended, stats)

    def _columns(
        self, plane: Plane, count: int, row: Ints, start: Ints, end: Ints, wanted: frozenset[str]
    ) -> dict[str, pl.Series]:
        """Statistics by name, each a column over all events; null if an event lacks it."""
        name = np.zeros(len(row), np.int64)
        kind = np.zeros(len(row), np.int64)
        value = np.zeros(len(row), np.uint64)
        size = np.zeros(len(row), np.int64)
        for pass_ in passes(self.array, start, end):
            hit = pass_.of(1, VARINT)
            name[pass_.row[hit]] = pass_.value[hit].view(np.int64)
            for field_number, wire in (
                (_DOUBLE, FIXED64),
                (_UNSIGNED, VARINT),
                (_SIGNED, VARINT),
                (_TEXT, LENGTH),
                (_REFERENCE, VARINT),
            ):
                hit = pass_.of(field_number, wire)
                at = pass_.row[hit]
                kind[at], value[at], size[at] = field_number, pass_.value[hit], pass_.size[hit]
        columns_by_title: dict[str, pl.Series] = {}
        for key in np.unique(name).tolist():
            title = plane.stat_names.get(key)
            if title in wanted:
                assert title is not None
                here = np.flatnonzero((name == key) & (kind > 0))
                if len(here):
                    column = self._column(
                        plane, count, row[here], kind[here], value[here], size[here]
                    )
                    column_there = columns_by_title.get(title)
                    columns_by_title[title] = column if column_there is None else column_there
        return columns_by_title

    def _column(
        self, plane: Plane, count: int, row: Ints, kind: Ints, value: NDArray[np.uint64], size: Ints
    ) -> pl.Series:
        """The column of one statistic. If an event has several with one name, the last counts."""
        index = np.full(count, -1, np.int64)
        index[row] = np.arange(len(row))
        is_text = kind == _TEXT
        is_name = kind == _REFERENCE
        values: pl.Series
        if is_text.all():
            values = texts(self.array, value.astype(np.int64), size)
        elif is_text.any() or is_name.any():
            strings = pl.Series([None], dtype=pl.String).new_from_index(0, len(row))
            if is_name.any():
                distinct, inverse = np.unique(value[is_name], return_inverse=True)
                known = pl.Series(
                    [plane.stat_names.get(int(number)) for number in distinct], dtype=pl.String
                )
                strings = strings.scatter(
                    np.flatnonzero(is_name), known.gather(inverse.reshape(-1))
                )
            if is_text.any():
                mine = texts(self.array, value[is_text].astype(np.int64), size[is_text])
                strings = strings.scatter(np.flatnonzero(is_text), mine)
            values = strings
        elif (kind == _DOUBLE).any():
            numbers = np.where(kind == _DOUBLE, value.view(np.float64), value.view(np.int64))
            values = pl.Series(numbers)
        else:
            values = pl.Series(value.view(np.int64))
        known_rows = pl.Series(np.where(index >= 0, index, 0))
        return (
            values.gather(known_rows)
            .to_frame("value")
            .select(pl.when(pl.Series(index >= 0)).then(pl.col("value")))
            .to_series()
        )


def _entries(data: bytes, message: Fields, field_number: int) -> Iterator[Fields]:
    """Yield the values of a map field. The map's key, if any, replaces the value's own number (field 1)."""
    entry_spans = spans(message, field_number)
    if len(entry_spans) > MAX_NAMES:
        raise WireError(f"a table with over {MAX_NAMES} names")
    for span in entry_spans:
        entry = fields(data, *span)
        values = spans(entry, 2)
        if values:
            value = fields(data, *values[-1])
            if 1 in entry:  # events refer to the map's key
                value[1] = entry[1]
            yield value


def _stats(
    data: bytes, message: Fields, field_number: int, names: dict[int, str]
) -> dict[str, object]:
    """The statistics of a plane or of a row of its table; bytes as (start, end)."""
    stats: dict[str, object] = {}
    for span in spans(message, field_number):
        stat = fields(data, *span)
        name = names.get(number(stat, 1))
        if name is None:
            continue
        if _DOUBLE in stat:
            stats[name] = float(np.array([number(stat, _DOUBLE)], np.int64).view(np.float64)[0])
        elif _TEXT in stat:
            stats[name] = text(data, stat, _TEXT)
        elif _BYTES in stat:
            stats[name] = spans(stat, _BYTES)[-1] if spans(stat, _BYTES) else None
        elif _REFERENCE in stat:
            stats[name] = names.get(number(stat, _REFERENCE), "")
        else:
            stats[name] = number(stat, _SIGNED if _SIGNED in stat else _UNSIGNED)
    return stats


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def nulls(name: str, dtype: Any, count: int) -> pl.Series:
    """A column of ``count`` nulls."""
    column: pl.Series = pl.Series(name, [None], dtype=dtype).new_from_index(0, count)
    return column


def integers(events: Events, title: str, many: int) -> pl.Series:
    """The whole numbers of one statistic, null where an event has none."""
    stat_column = events.stats.get(title)
    if stat_column is None:
        return nulls(title, pl.Int64, many)
    column: pl.Series = stat_column.cast(pl.Int64, strict=False).alias(title)
    return column


def strings(events: Events, title: str, many: int) -> pl.Series:
    """The texts of one statistic, null where an event has none."""
    stat_column = events.stats.get(title)
    if stat_column is None or stat_column.dtype != pl.String:
        return nulls(title, pl.String, many)
    return stat_column.alias(title)
