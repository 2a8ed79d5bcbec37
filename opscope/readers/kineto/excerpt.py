"""Cut a stretch of time out of a large Kineto file without reading the rest, for a first answer.

Kineto writes the events of one thread or stream after those of another, each in order of time. So the events
of a short stretch lie in a few places of the file. Probes at equal distances show at which times its parts
begin; a part in which the stretch may lie is halved until it is short. What is cut out goes from the first to
the last complete step, if there is any. Device work is taken with its launch.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import numpy as np
from numpy.typing import NDArray

from opscope.core.tables.intervals import Ints

from .columns import DEVICE, kind_of

#: Bytes of events that are cut out: analysed in a second.
BUDGET: Final = 16 << 20
#: Seconds after which the search is given up.
_PATIENCE: Final = 6.0
_PROBES: Final = 192
#: Bytes of a probe, of the shortest part of the file, and around the events for the keys beside them.
_PROBE, _PART, _EDGE = 1 << 15, 1 << 20, 1 << 19
#: The fewest bytes of an event, on average.
_SHORTEST: Final = 64
#: A thread's events take up to so many times more time a byte than those of all threads.
_THREADS: Final = 64
_ARRAY: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
# each is searched by itself, so that a damaged file takes no longer
_EVENT: Final = re.compile(rb'\{\s*"ph"\s*:\s*"(\w)"(?:\s*,\s*"cat"\s*:\s*"(\w*)")?')
_TIME: Final = rb"([0-9]{1,19}(?:\.[0-9]{1,9})?)"
_TIMES: Final = re.compile(rb'"ts"\s*:\s*%b(?:\s*,\s*"dur"\s*:\s*%b)?' % (_TIME, _TIME))
_CORRELATION: Final = re.compile(rb'"correlation"\s*:\s*([0-9]{1,18})')
_STEP: Final = re.compile(rb'"name"\s*:\s*"ProfilerStep#')
_METADATA: Final = re.compile(rb'\{\s*"name"\s*:\s*"process_name"')
_Floats = NDArray[np.float64]


class _OutOfOrder(Exception):
    """The file's events are not in the order that Kineto gives them, or the search takes too long."""


def cut(path: Path, target: Path, budget: int = BUDGET) -> float | None:
    """Write events of a stretch in the middle of ``path`` (JSON, not compressed) to ``target``, with the keys
    beside the events; return their share of the file's bytes. None, and nothing written, if the events are
    not in Kineto's order. ``budget``: about how many bytes. Raises OSError."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_EDGE)
        array = _ARRAY.search(head)
        if array is None:
            return None
        search = _Search(file, array.end(), size, time.monotonic() + _PATIENCE)
        try:
            events = b",".join(search.events(budget))
        except _OutOfOrder:
            return None
        file.seek(max(array.end(), size - _EDGE))
        tail = file.read()
    if not events:
        return None
    names = _METADATA.search(tail)
    ending = tail[names.start() :] if names and tail.rstrip().endswith(b"}") else None
    with target.open("wb") as written:
        written.write(head[: array.end()] + events + (b"]}" if ending is None else b"," + ending))
    return len(events) / size


@dataclass(frozen=True, slots=True)
class _Events:
    """Complete events of a text: where each lies in it, its times (µs), and its correlation id (-1: none)."""

    text: bytes
    begin: Ints
    after: Ints
    start: _Floats
    end: _Floats
    correlation: Ints
    on_device: NDArray[np.bool_]
    is_step: NDArray[np.bool_]


@dataclass(slots=True)
class _Search:
    """The search for a stretch between two offsets of a file."""

    file: IO[bytes]
    begin: int
    after: int
    deadline: float

    def events(self, budget: int) -> Iterator[bytes]:
        """Return the text of each event of the stretch. Raises _OutOfOrder."""
        places = np.linspace(self.begin, self.after, _PROBES, endpoint=False).astype(np.int64)
        begins = [(place, self._first(place)) for place in places.tolist()]
        probes = [(place, begun) for place, begun in begins if begun is not None]
        if len(probes) < _PROBES // 2:
            raise _OutOfOrder
        half = min(0.5, budget / (self.after - self.begin)) / 2
        first, last = np.quantile([begun for _, begun in probes], [0.5 - half, 0.5 + half]).tolist()
        length = last - first
        parts = self._parts(probes, first - length, last + length)
        if sum(after - begin for begin, after in parts) > 4 * budget + 48 * _PART:
            raise _OutOfOrder
        pieces = [self._complete(begin, after) for begin, after in parts]
        first, last = _whole_steps(pieces, first, last)
        host = [~each.on_device & (each.start >= first) & (each.end <= last) for each in pieces]
        launched = np.unique(
            np.concatenate(
                [each.correlation[rows] for each, rows in zip(pieces, host, strict=True)]
            )
        )
        launched = launched[launched >= 0]
        return (
            each.text[begin:after]
            for each, rows in zip(pieces, host, strict=True)
            for begin, after in _slices(
                each, rows | (each.on_device & np.isin(each.correlation, launched))
            )
        )

    def _read(self, begin: int, after: int) -> bytes:
        if time.monotonic() > self.deadline:
            raise _OutOfOrder
        self.file.seek(begin)
        return self.file.read(after - begin)

    def _complete(self, begin: int, after: int) -> _Events:
        text = self._read(begin, after)
        for key in (b'"ph"', b'"ts"', b'"correlation"'):  # Kineto's shortest events have 100 bytes
            if text.count(key) > len(text) // _SHORTEST:
                raise _OutOfOrder
        return _complete(text)

    def _first(self, offset: int) -> float | None:
        """Return the begin (µs) of the first event after an offset; names of threads are no events."""
        text = self._read(offset, offset + _PROBE)
        event = next((each for each in _EVENT.finditer(text) if each[1] != b"M"), None)
        times = event and _TIMES.search(text, event.end())
        return float(times[1]) if times else None

    def _parts(
        self, probes: list[tuple[int, float]], first: float, last: float
    ) -> list[tuple[int, int]]:
        """Return the parts of the file in which events of the stretch may lie, in order; those that touch are
        one."""
        span = max(begun for _, begun in probes) - min(begun for _, begun in probes)
        rate = _THREADS * span / (self.after - self.begin)
        ends = [*probes[1:], (self.after, np.inf)]
        left = [(*one, *other) for one, other in zip(probes, ends, strict=True)][::-1]
        parts: list[tuple[int, int]] = []
        while left:
            begin, from_, after, to = left.pop()
            reach = (
                rate * (after - begin) if from_ > to else np.inf
            )  # another thread's events follow
            before = first - reach <= from_ <= last
            behind = first <= to <= last + reach
            if not (before or behind if from_ > to else before and behind):
                continue
            if after - begin > _PART:
                middle = (begin + after) // 2
                there = self._first(middle)
                if there is not None:
                    left += [(middle, there, after, to), (begin, from_, middle, there)]
                    continue
            if parts and parts[-1][1] >= begin:
                parts[-1] = parts[-1][0], min(after + _PROBE, self.after)
            else:
                parts.append((begin, min(after + _PROBE, self.after)))
        return parts


def _complete(text: bytes) -> _Events:
    """Return the events of a part of the file but the last, which may not be complete."""
    matches = list(_EVENT.finditer(text))
    begin = np.array([each.start() for each in matches], np.int64)
    kinds = [kind_of(each[1].decode(), (each[2] or b"").decode()) for each in matches]
    times = list(_TIMES.finditer(text))
    at = np.array([each.start() for each in times], np.int64)
    of_event = np.searchsorted(at, begin)
    after = np.append(begin[1:], len(text)) if len(begin) else begin
    timed = np.flatnonzero((of_event < len(at)) & (np.append(at, len(text))[of_event] < after))
    timed = timed[timed < len(begin) - 1]
    start = np.array([float(times[row][1]) for row in of_event[timed].tolist()])
    lasted = np.array([float(times[row][2] or 0) for row in of_event[timed].tolist()])
    correlation = np.full(len(begin), -1, np.int64)
    ids = list(_CORRELATION.finditer(text))
    correlation[_event_of(begin, ids)] = [int(each[1]) for each in ids]
    is_step = np.zeros(len(begin), bool)
    is_step[_event_of(begin, list(_STEP.finditer(text)))] = True
    on_device = np.array([kind in DEVICE for kind in kinds], bool)
    return _Events(
        text, begin[timed], after[timed], start, start + lasted, correlation[timed],
        on_device[timed], is_step[timed] & ~on_device[timed],
    )  # fmt: skip


def _event_of(begin: Ints, matches: list[re.Match[bytes]]) -> Ints:
    """Return the event in which each match lies; before the first, the last."""
    at = np.array([each.start() for each in matches], np.int64)
    events: Ints = np.searchsorted(begin, at) - 1
    return events


def _whole_steps(pieces: list[_Events], first: float, last: float) -> tuple[float, float]:
    """Return the begin of the first and the end of the last step that lies within; without any, the same."""
    start, end = (
        np.concatenate([getattr(each, name)[each.is_step] for each in pieces])
        for name in ("start", "end")
    )
    inside = (start >= first) & (end <= last)
    if not inside.any():
        return first, last
    return float(start[inside].min()), float(end[inside].max())


def _slices(events: _Events, rows: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield where runs of these events begin and end in the text, without the comma after."""
    edges = np.flatnonzero(np.diff(rows, prepend=False, append=False))
    for first, last in edges.reshape(-1, 2).tolist():
        begin, after = int(events.begin[first]), int(events.after[last - 1])
        yield begin, begin + len(events.text[begin:after].rstrip(b" \t\r\n,"))
