"""Perfetto's protobuf: threads, calls, streams and counters as tracks, with arrows from call to kernel.

The field numbers are those of Perfetto's ``trace_packet.proto`` and ``track_event.proto``. Texts are
interned: each is written once, and referred to by its number.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from opscope.core import progress
from opscope.core.hlo.wire import field
from opscope.core.tables.intervals import NONE
from opscope.exports.timeline import COUNTER, STREAM, THREAD, Curve, Slices, Timeline, Track, Words

if TYPE_CHECKING:
    from opscope.profile import Profile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from opscope.core.hlo.wire import FIXED64, LENGTH, VARINT, tag

Bytes = NDArray[np.uint8]
#: Length in bytes of a padded varint that holds 63 bits, 35 bits, 14 bits.
TIME: Final = 9
NUMBER: Final = 5
SIZE: Final = 2


@dataclass(frozen=True, slots=True)
class Column:
    """A field whose value differs by row. ``width``: bytes of the padded varint; 0: a fixed field of 8
    bytes."""

    number: int
    values: NDArray[Any]
    width: int = NUMBER


Part: TypeAlias = "bytes | Column"
#: A part of a message: bytes, a column, or a nested message (its field number and its parts).
Piece: TypeAlias = "Part | tuple[int, Sequence[Any]]"


def rows(parts: Sequence[Piece], count: int) -> Bytes:
    """Return ``count`` messages of equal length, one per row."""
    columns: list[Bytes] = []
    for part in parts:
        if isinstance(part, bytes):
            columns.append(np.broadcast_to(np.frombuffer(part, np.uint8), (count, len(part))))
        elif isinstance(part, Column):
            columns.append(_column(part, count))
        else:
            inside = rows(part[1], count)
            head = tag(part[0], LENGTH) + _pad(inside.shape[1], SIZE)
            columns.append(np.broadcast_to(np.frombuffer(head, np.uint8), (count, len(head))))
            columns.append(inside)
    return np.concatenate(columns, axis=1) if columns else np.empty((count, 0), np.uint8)


def _column(column: Column, count: int) -> Bytes:
    head = np.frombuffer(tag(column.number, VARINT if column.width else FIXED64), np.uint8)
    if column.width:
        shifts = np.arange(column.width, dtype=np.uint64) * np.uint64(7)
        digits = (column.values.astype(np.uint64)[:, None] >> shifts) & np.uint64(127)
        digits[:, :-1] |= np.uint64(128)
        content = digits.astype(np.uint8)
    else:
        content = np.ascontiguousarray(column.values).view(np.uint8).reshape(count, 8)
    return np.concatenate((np.broadcast_to(head, (count, len(head))), content), axis=1)


def _pad(value: int, width: int) -> bytes:
    digits = [value >> 7 * index & 127 for index in range(width)]
    return bytes([digit | 128 for digit in digits[:-1]] + [digits[-1]])


def merged(forms: Sequence[tuple[NDArray[np.int64], Bytes]], count: int) -> memoryview:
    """Return messages of several forms in one sequence. Each form comes with the positions of its messages
    in this sequence."""
    size = np.zeros(count, np.int64)
    for places, rows_made in forms:
        size[places] = rows_made.shape[1]
    begin = np.cumsum(size) - size
    data = np.empty(int(size.sum()), np.uint8)
    for places, rows_made in forms:
        if len(places):
            data[begin[places][:, None] + np.arange(rows_made.shape[1])] = rows_made
    return data.data


#: Field numbers of TracePacket.
_PACKET, _TIME, _SEQUENCE, _EVENT, _INTERNED, _FLAGS, _TRACK = 1, 8, 10, 11, 12, 13, 60
#: Field numbers of TrackEvent.
_CATEGORY, _DETAIL, _TYPE, _NAME, _UUID, _VALUE, _FLOW = 3, 4, 9, 10, 11, 44, 47
_BEGIN, _END, _INSTANT, _COUNTED = 1, 2, 3, 4
#: Field numbers of InternedData, by what the texts are.
_CATEGORIES, _NAMES, _DETAIL_NAMES, _TEXTS = 1, 2, 3, 29
_CLEARED, _NEEDED = 1, 2
#: All packets belong to one sequence, because interned texts are valid only within a sequence.
_ONE: Final = field(_SEQUENCE, 1)
#: Added to the numbers of threads without ranges (which have no track), so that they exceed the numbers of
#: tracks and processes.
_THREAD: Final = 1 << 34
#: Events that are written at a time: about 30 MB.
_AT_ONCE: Final = 200_000


def write(profile: Profile, out: BinaryIO, scratch: Path | None = None) -> dict[str, int]:
    """Write the profile's timeline; return how many slices, instants, flows and counter values it has."""
    timeline = Timeline(profile, scratch)
    with progress.stage("writing the timeline", len(timeline), progress.SLICES) as stage:
        return _write(timeline, out, stage)


def _write(timeline: Timeline, out: BinaryIO, stage: progress.Stage) -> dict[str, int]:
    counts = dict.fromkeys(("slices", "instants", "flows", "counter values"), 0)
    writer = _Writer(out, stage)
    writer.begin()
    for number, name in timeline.processes.items():
        process = field(1, timeline.pids[number]) + field(6, name)
        writer.track(_process(number), field(3, process))
    for track, slices in timeline.slices():
        writer.named(track)
        writer.slices(track, slices)
        counts["slices"] += len(slices.stack.rows)
        counts["instants"] += len(slices.marks)
        if track.kind == STREAM:
            written = np.concatenate((slices.stack.rows, slices.marks))
            counts["flows"] += int((slices.flow[written] > 0).sum())
    for track, curve in timeline.curves():
        writer.named(track)
        writer.curve(track, curve)
        counts["counter values"] += len(curve.time)
    return counts


def _process(number: int) -> int:
    """Return the uuid of a process's track, to which the uuids of its other tracks are added."""
    return (1 << 32) + number + 2


class _Writer:
    """Writes packets, and each text before the first packet that refers to it."""

    def __init__(self, out: BinaryIO, stage: progress.Stage) -> None:
        self._out, self._stage = out, stage
        self._known: dict[tuple[int, str], int] = {}
        self._named: set[int] = set()
        #: The track of each thread, by its process and number: names of threads are often equal.
        self._threads: dict[tuple[int, int], int] = {}
        self._many = dict.fromkeys((_CATEGORIES, _NAMES, _DETAIL_NAMES, _TEXTS), 0)

    def packet(self, content: bytes) -> None:
        self._out.write(field(_PACKET, content))

    def begin(self) -> None:
        self.packet(_ONE + field(_FLAGS, _CLEARED))

    def track(self, uuid: int, content: bytes) -> None:
        self.packet(_ONE + field(_TRACK, field(1, uuid) + content))

    def named(self, track: Track) -> None:
        """Write the descriptor of a track, once."""
        if track.number in self._named:
            return
        self._named.add(track.number)
        parent = field(5, _process(track.process))
        if track.kind == COUNTER:
            self.track(track.number, field(2, track.name) + field(8, field(6, track.unit)) + parent)
        elif track.thread is None or not 0 < track.thread < 1 << 31:
            self.track(track.number, field(2, track.name) + parent)
        else:
            key = (track.process, track.thread)
            own = track.kind == THREAD and track.tid is not None
            if key not in self._threads:
                self._threads[key] = track.number if own else _THREAD + track.number
                name = track.name.removesuffix(": calls").removesuffix(": sampled lines")
                thread = field(1, track.pid) + field(2, track.thread) + field(5, name)
                self.track(self._threads[key], field(4, thread))
            if self._threads[key] != track.number:
                above = field(5, self._threads[key])
                self.track(track.number, field(2, track.name) + above)

    def coded(self, kind: int, words: Words) -> NDArray[np.int64]:
        """Return the number of each row's text (any number for a row without one); new texts are written
        first."""
        used, index = words.used()
        codes_of_words = np.zeros(len(used), np.int64)
        new: list[bytes] = []
        for at, code in enumerate(used):
            if code == NONE:
                continue
            key = (kind, words.texts[code])
            if key not in self._known:
                self._many[kind] += 1
                self._known[key] = self._many[kind]
                new.append(field(kind, field(1, self._many[kind]) + field(2, words.texts[code])))
            codes_of_words[at] = self._known[key]
        for first in range(0, len(new), 10_000):
            content = b"".join(new[first : first + 10_000])
            self.packet(_ONE + field(_FLAGS, _NEEDED) + field(_INTERNED, content))
        return codes_of_words[index]

    def slices(self, track: Track, slices: Slices) -> None:
        """Write a track's slices in the order of their edges, then its instants."""

        def opened(
            chosen: NDArray[np.int64], event_type: int
        ) -> Iterator[tuple[NDArray[np.int64], Bytes]]:
            """Yield the packets of the rows that begin; rows with the same details are written together."""
            about = slices.details(chosen)
            name = self.coded(_NAMES, slices.name.part(chosen))
            kind = self.coded(_CATEGORIES, slices.kind.part(chosen))
            details = [
                (self._detail(said), words.codes, self.coded(_TEXTS, words))
                for said, words in about.words.items()
            ]
            figures = [(self._detail(said), *both) for said, both in about.numbers.items()]
            mask = np.zeros(len(chosen), np.int64)
            for index, (_, codes, _) in enumerate(details):
                mask |= (codes >= 0).astype(np.int64) << index
            for index, (_, value, is_known) in enumerate(figures, len(details)):
                mask |= (is_known & (value >= 0)).astype(np.int64) << index
            mask |= (slices.flow[chosen] > 0).astype(np.int64) << 40
            for form in np.unique(mask).tolist():
                here = np.flatnonzero(mask == form)
                of = chosen[here]
                event: list[Piece] = [
                    field(_TYPE, event_type) + field(_UUID, track.number),
                    Column(_NAME, name[here]),
                    Column(_CATEGORY, kind[here]),
                ]
                for index, (said, _, number) in enumerate(details):
                    if form >> index & 1:
                        event.append((_DETAIL, [field(1, said), Column(17, number[here])]))
                for index, (said, value, _) in enumerate(figures, len(details)):
                    if form >> index & 1:
                        event.append((_DETAIL, [field(1, said), Column(4, value[here], TIME)]))
                if form >> 40 & 1:
                    event.append(Column(_FLOW, slices.flow[of].astype("<u8"), 0))
                yield here, self._packets(slices.start[of], event)

        stack = slices.stack
        edges = len(stack.rows) + len(stack.closing)
        if edges:
            order = np.empty(edges, np.int64)  # even: the slice opens; odd: it closes
            order[stack.opens] = 2 * stack.rows
            order[stack.closes] = 2 * stack.closing + 1
            for first in range(0, len(order), _AT_ONCE):
                part = order[first : first + _AT_ONCE]
                opens = np.flatnonzero(part % 2 == 0)
                closes = np.flatnonzero(part % 2)
                forms = [
                    (opens[here], packets) for here, packets in opened(part[opens] // 2, _BEGIN)
                ]
                end = slices.end[part[closes] // 2]
                event: list[Piece] = [field(_TYPE, _END) + field(_UUID, track.number)]
                forms.append((closes, self._packets(end, event)))
                self._out.write(merged(forms, len(part)))
                self._stage.add(len(opens))
        for first in range(0, len(slices.marks), _AT_ONCE):
            chosen = slices.marks[first : first + _AT_ONCE]
            self._out.write(merged(list(opened(chosen, _INSTANT)), len(chosen)))
            self._stage.add(len(chosen))

    def curve(self, track: Track, curve: Curve) -> None:
        """Write the values of a counter."""
        for first in range(0, len(curve.time), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            event: list[Piece] = [
                field(_TYPE, _COUNTED) + field(_UUID, track.number),
                Column(_VALUE, curve.value[part].astype("<f8"), 0),
            ]
            self._out.write(self._packets(curve.time[part], event).tobytes())

    def _detail(self, name: str) -> int:
        words = Words(np.zeros(1, np.int32), [name])
        return int(self.coded(_DETAIL_NAMES, words)[0])

    @staticmethod
    def _packets(time: Any, event: list[Piece]) -> Bytes:
        head = _ONE + field(_FLAGS, _NEEDED)
        packet: list[Piece] = [head, Column(_TIME, time, TIME), (_EVENT, event)]
        return rows([(_PACKET, packet)], len(time))
