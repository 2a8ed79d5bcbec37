"""An XSpace (``.xplane.pb``) as planes of event columns.

Field numbers are those of tsl/profiler/protobuf/xplane.proto: a space holds planes, a plane lines and
tables of names, a line events, an event a number in the table, an offset, a duration and statistics.
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

#: Events decoded at a time; each takes some 200 bytes while it is.
BATCH: Final = 1 << 20
#: Repeats of a statistic in a table of names, and names in it, beyond which the file is no trace.
MAX_NAMES: Final = 1 << 22
#: Stands for a time that cannot be, ns; added to a line's time it is none either.
FAR: Final = 1 << 62
#: A tree of annotations, a statistic for each that was ever pushed, which nothing here asks for.
_SCOPES: Final = "/host:__ScopeRangeCallStack__"
#: A statistic's field for each kind of value.
_DOUBLE, _UNSIGNED, _SIGNED, _TEXT, _BYTES, _REFERENCE = range(2, 8)


@dataclass(slots=True)
class Event:
    """A row of a plane's table of events: what all events of one number have in common."""

    name: str
    stats: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Line:
    """A thread or a stream. ``time``: what the offsets count from, ns."""

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
    """A batch of events of one line: the table's number, ns from the line's time, its statistics.

    ``stats``: for each statistic's name its rows and values (Int64, Float64 or String).
    """

    number: Ints
    start: Ints
    end: Ints
    stats: dict[str, pl.Series]


class Space:
    """One file's bytes. Raises WireError where they are no XSpace."""

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
        """The planes one by one, their events not yet decoded."""
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
        found = {place: (value, size) for place, value, size in others}

        def name(place: int) -> str:
            at, size = found.get(place, (0, 0))
            return self.data[at : at + size].decode("utf-8", "replace")

        place, time = _signed(found.get(1, (0, 0))[0]), _signed(found.get(3, (0, 0))[0])
        return Line(place, name(11) or name(2), time if abs(time) < FAR // 2 else FAR, starts, ends)

    def batches(self, plane: Plane, line: Line, wanted: frozenset[str]) -> Iterator[Events]:
        """The line's events, with those statistics that are ``wanted``."""
        for first in range(0, len(line.starts), BATCH):
            part = slice(first, first + BATCH)
            yield self._events(plane, line.starts[part], line.ends[part], wanted)

    def _events(self, plane: Plane, start: Ints, end: Ints, wanted: frozenset[str]) -> Events:
        many = len(start)
        columns = {place: np.zeros(many, np.int64) for place in (1, 2, 3)}
        rows: list[Ints] = []
        begins: list[Ints] = []
        sizes: list[Ints] = []
        for one in passes(self.array, start, end):
            for place, column in columns.items():
                hit = one.of(place, VARINT)
                column[one.row[hit]] = one.value[hit].view(np.int64)
            hit = one.of(4, LENGTH)
            rows.append(one.row[hit])
            begins.append(one.value[hit].astype(np.int64))
            sizes.append(one.size[hit])
        offset, duration = columns[2], np.maximum(columns[3], 0)
        stats = {}
        if wanted and rows:
            begin = np.concatenate(begins)
            stats = self._columns(
                plane, many, np.concatenate(rows), begin, begin + np.concatenate(sizes), wanted
            )
        # in 62 bits both add up; ``sound`` leaves out and counts what is not, nor near any time
        far = (np.abs(offset) > 1 << 62) | (offset == -(1 << 63)) | (duration > 1 << 62)
        offset[far], duration[far] = 0, 0
        begun, ended = offset // 1000, (offset + duration) // 1000
        begun[far] = ended[far] = FAR
        return Events(columns[1], begun, ended, stats)

    def _columns(
        self, plane: Plane, many: int, row: Ints, start: Ints, end: Ints, wanted: frozenset[str]
    ) -> dict[str, pl.Series]:
        """Statistics by name, each a column over all events: null where an event has it not."""
        name = np.zeros(len(row), np.int64)
        kind = np.zeros(len(row), np.int64)
        value = np.zeros(len(row), np.uint64)
        size = np.zeros(len(row), np.int64)
        for one in passes(self.array, start, end):
            hit = one.of(1, VARINT)
            name[one.row[hit]] = one.value[hit].view(np.int64)
            for place, wire in (
                (_DOUBLE, FIXED64),
                (_UNSIGNED, VARINT),
                (_SIGNED, VARINT),
                (_TEXT, LENGTH),
                (_REFERENCE, VARINT),
            ):
                hit = one.of(place, wire)
                at = one.row[hit]
                kind[at], value[at], size[at] = place, one.value[hit], one.size[hit]
        found: dict[str, pl.Series] = {}
        for place in np.unique(name).tolist():
            title = plane.stat_names.get(place)
            if title in wanted:
                assert title is not None
                here = np.flatnonzero((name == place) & (kind > 0))
                if len(here):
                    column = self._column(
                        plane, many, row[here], kind[here], value[here], size[here]
                    )
                    known = found.get(title)
                    found[title] = column if known is None else known
        return found

    def _column(
        self, plane: Plane, many: int, row: Ints, kind: Ints, value: NDArray[np.uint64], size: Ints
    ) -> pl.Series:
        """One statistic. Of several of one name in an event the last counts."""
        place = np.full(many, -1, np.int64)
        place[row] = np.arange(len(row))
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
                    [plane.stat_names.get(int(one)) for one in distinct], dtype=pl.String
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
        known_rows = pl.Series(np.where(place >= 0, place, 0))
        return (
            values.gather(known_rows)
            .to_frame("value")
            .select(pl.when(pl.Series(place >= 0)).then(pl.col("value")))
            .to_series()
        )


def _entries(data: bytes, message: Fields, place: int) -> Iterator[Fields]:
    """The values of a map field, each message's own number (field 1) its key where it has none."""
    found = spans(message, place)
    if len(found) > MAX_NAMES:
        raise WireError(f"a table of over {MAX_NAMES} names")
    for span in found:
        entry = fields(data, *span)
        values = spans(entry, 2)
        if values:
            value = fields(data, *values[-1])
            if 1 in entry:  # the map's key is what events refer to
                value[1] = entry[1]
            yield value


def _stats(data: bytes, message: Fields, place: int, names: dict[int, str]) -> dict[str, object]:
    """Statistics of a plane or of a row of its table; bytes as (start, end)."""
    found: dict[str, object] = {}
    for span in spans(message, place):
        stat = fields(data, *span)
        name = names.get(number(stat, 1))
        if name is None:
            continue
        if _DOUBLE in stat:
            found[name] = float(np.array([number(stat, _DOUBLE)], np.int64).view(np.float64)[0])
        elif _TEXT in stat:
            found[name] = text(data, stat, _TEXT)
        elif _BYTES in stat:
            found[name] = spans(stat, _BYTES)[-1] if spans(stat, _BYTES) else None
        elif _REFERENCE in stat:
            found[name] = names.get(number(stat, _REFERENCE), "")
        else:
            found[name] = number(stat, _SIGNED if _SIGNED in stat else _UNSIGNED)
    return found


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def nulls(name: str, dtype: Any, many: int) -> pl.Series:
    """A column of ``many`` rows of which nothing is known."""
    column: pl.Series = pl.Series(name, [None], dtype=dtype).new_from_index(0, many)
    return column
