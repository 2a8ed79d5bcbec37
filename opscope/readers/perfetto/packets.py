"""Decode Perfetto's packets a piece at a time into columns of track events.

The numbers of fields are those of Perfetto's ``trace_packet.proto``, ``track_event.proto``,
``interned_data.proto``, ``debug_annotation.proto`` and ``clock_snapshot.proto``. One NumPy pass reads a field
of every packet of a piece (``readers/xplane/wire.py``); loops go over distinct texts, tracks and clocks.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.hlo.wire import (
    FIXED32,
    FIXED64,
    LENGTH,
    VARINT,
    WireError,
    fields,
    number,
    spans,
    text,
    varint,
)
from opscope.core.tables.intervals import Ints
from opscope.readers.xplane.wire import Bytes, passes, texts, varints

from .clocks import Clocks
from .descriptors import Descriptors

#: Packets that are decoded at a time: some 60 MB meanwhile.
AT_ONCE: Final = 1 << 17
#: The most distinct texts and tracks of a file.
MOST_TEXTS: Final = 1 << 22
#: The most bytes to which a compressed packet, and all of a file, may unpack.
_MOST_UNPACKED, _MOST_IN_ALL = 256 << 20, 4 << 30
_PACKET_TAG: Final = 1 << 3 | LENGTH
#: The beginning of a packet that holds others, compressed by zlib (field 50).
_COMPRESSED: Final = b"\x92\x03"
#: TracePacket.
_CLOCKS, _TIME, _SEQUENCE, _EVENT, _INTERNED, _FLAGS, _CLEARED = 6, 8, 10, 11, 12, 13, 41
_LOST, _CLOCK, _DEFAULTS, _TRACK = 42, 58, 59, 60
_STATE_CLEARED: Final = 1
#: TrackEvent.
_CATEGORY, _DETAIL, _TYPE, _NAME_ID, _UUID, _CATEGORY_TEXT, _NAME = 3, 4, 9, 10, 11, 22, 23
_COUNT, _FLOW_OLD, _VALUE, _FLOW, _FLOW_END_OLD, _FLOW_END = 30, 36, 44, 47, 42, 48
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
#: InternedData: categories, names of events, names of details, texts of details.
_CATEGORIES, _NAMES, _DETAIL_NAMES, _TEXTS = 1, 2, 3, 29
#: Details that are kept, by name.
DETAILS: Final = frozenset(
    (
        "text",
        "domain",
        "direction",
        "stream",
        "device",
        "context",
        "correlation",
        "corr_id",
        "queue",
        "agent",
        "tid",
        "bytes",
    )
)
_NOTHING: Final = -1
#: The numbers of a sequence's texts are below this; writers count from 1.
_IDS: Final = 1 << 32


@dataclass(slots=True)
class Events:
    """The track events of a piece: columns of one length, and details as (row, number, text) by name.

    ``time``: ns on the trace's clock; ``name``, ``category``: codes of ``Decoder.words``, -1 for none;
    ``flow``: 0 for none; ``text`` of a detail is a code too.
    """

    track: Ints
    time: Ints
    kind: Ints
    name: Ints
    category: Ints
    flow: Ints
    value: NDArray[np.float64]
    details: dict[str, tuple[Ints, Ints, Ints]] = field(default_factory=dict)


def pieces(data: Any, end: int, depth: int = 0) -> Iterator[tuple[Any, Ints, Ints, int]]:
    """Yield the bytes, the starts and the ends of some packets, and the file position after them. Compressed
    packets are unpacked. The last position is before the end if the file ends within a packet. Raises
    WireError."""
    starts: list[int] = []
    ends: list[int] = []
    at, unpacked = 0, 0
    while at < end:
        if data[at] != _PACKET_TAG:
            at = _over_other(data, at, end)
            continue
        bounds = _bounds(data, at, end)
        if bounds is None:
            break
        first, last = bounds
        if data[first : first + 2] == _COMPRESSED:
            yield data, np.array(starts, np.int64), np.array(ends, np.int64), at
            starts, ends = [], []
            inside = _unpacked(data, first, last, depth)
            unpacked += len(inside)
            if unpacked > _MOST_IN_ALL:
                raise WireError(f"it unpacks to more than {_MOST_IN_ALL >> 30} GiB")
            for part in pieces(inside, len(inside), 1):
                yield (*part[:3], last)
            at = last
            continue
        starts.append(first)
        ends.append(last)
        at = last
        if len(starts) == AT_ONCE:
            yield data, np.array(starts, np.int64), np.array(ends, np.int64), at
            starts, ends = [], []
    yield data, np.array(starts, np.int64), np.array(ends, np.int64), min(at, end)


def _bounds(data: Any, at: int, end: int) -> tuple[int, int] | None:
    """Return where the packet at ``at`` begins and ends; None if the file ends within it."""
    if end - at > 2:
        byte, more = data[at + 1], data[at + 2]
        if byte < 0x80:
            first, size = at + 2, byte
        elif more < 0x80:  # by far the most frequent case
            first, size = at + 3, byte & 0x7F | more << 7
        else:
            try:
                size, first = varint(data, at + 1, end)
            except WireError:
                if end - at > 10:
                    raise
                return None
    else:
        first, size = at + 2, data[at + 1] if end - at == 2 else end
    return None if first + size > end else (first, first + size)


def _over_other(data: Any, at: int, end: int) -> int:
    """Return the position after a field of the file that is not a packet."""
    tag, at = varint(data, at, end)
    kind = tag & 7
    if kind == VARINT:
        return varint(data, at, end)[1]
    if kind == LENGTH:
        size, at = varint(data, at, end)
        return at + size
    if kind in (FIXED32, FIXED64):
        return at + (4 if kind == FIXED32 else 8)
    raise WireError(f"unknown wire type {kind} at byte {at}")


def _unpacked(data: Any, first: int, end: int, depth: int) -> bytes:
    """Return the packets in a compressed one. Raises WireError."""
    if depth:
        raise WireError("compressed packets within compressed packets")
    size, at = varint(data, first + 2, end)
    if size > end - at:
        raise WireError("a compressed packet extends past its end")
    decoder = zlib.decompressobj()
    try:
        content = decoder.decompress(data[at : at + size], _MOST_UNPACKED)
    except zlib.error as error:
        raise WireError(f"a compressed packet is damaged: {error}") from error
    if decoder.unconsumed_tail:
        raise WireError(f"a compressed packet unpacks to more than {_MOST_UNPACKED >> 20} MB")
    return content


class Decoder:
    """The data that packets refer to: texts, tracks, clocks and defaults of each sequence, as far as they
    were read. A sequence numbers its texts anew where its state is cleared; the time in between is an epoch,
    and epochs have numbers of their own."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._codes: dict[str, int] = {}
        self._interned: dict[tuple[int, int, int], int] = {}
        self._epochs: dict[int, int] = {}
        self._next_epoch = 0
        self._default_track: dict[int, int] = {}
        self._default_clock: dict[int, int] = {}
        self.clocks = Clocks()
        self.tracks = Descriptors()
        self.lost = 0
        self.others = 0

    def code(self, word: str) -> int:
        """The code of a text."""
        code = self._codes.setdefault(word, len(self.words))
        if code == len(self.words):
            if code >= MOST_TEXTS:
                raise WireError(f"more than {MOST_TEXTS:,} distinct texts")
            self.words.append(word)
        return code

    def events(self, data: Any, starts: Ints, ends: Ints) -> Events:
        """Return the track events of these packets, in their order. Raises WireError."""
        count = len(starts)
        raw = np.frombuffer(data, np.uint8)
        columns = {
            name: np.zeros(count, np.int64) for name in (_TIME, _SEQUENCE, _FLAGS, _CLEARED, _CLOCK)
        }
        event = np.full(count, _NOTHING, np.int64)
        size = np.zeros(count, np.int64)
        rare: list[tuple[int, int, int, int]] = []
        for got in passes(raw, starts, ends):
            for name, column in columns.items():
                here = (got.number == name) & (got.kind == VARINT)
                column[got.row[here]] = got.value[here].view(np.int64)
            here = (got.number == _EVENT) & (got.kind == LENGTH)
            event[got.row[here]] = got.value[here].view(np.int64)
            size[got.row[here]] = got.size[here]
            self.lost += int(((got.number == _LOST) & (got.kind == VARINT) & (got.value > 0)).sum())
            needed = np.isin(got.number, (_CLOCKS, _INTERNED, _DEFAULTS, _TRACK)) & (
                got.kind == LENGTH
            )
            for at in np.flatnonzero(needed).tolist():
                first = int(got.value[at])
                rare.append(
                    (int(got.row[at]), int(got.number[at]), first, first + int(got.size[at]))
                )
        cleared = (columns[_FLAGS] & _STATE_CLEARED > 0) | (columns[_CLEARED] > 0)
        epoch = self._epoch_of(columns[_SEQUENCE], cleared)
        self._learn(data, sorted(rare), columns[_SEQUENCE], epoch)
        clock = columns[_CLOCK]
        clock = np.where(clock == 0, self._defaults(epoch, self._default_clock), clock)
        time = self.clocks.times(columns[_TIME], columns[_SEQUENCE], clock)
        rows = np.flatnonzero(event >= 0)
        self.others += count - len(rows) - len({row for row, *_ in rare})
        return self._decode(raw, event[rows], size[rows], time[rows], epoch[rows])

    def _epoch_of(self, sequence: Ints, cleared: NDArray[np.bool_]) -> Ints:
        """Return the epoch of each packet: a new epoch begins where the state of a sequence is cleared."""
        if not len(sequence):
            return sequence
        order = np.argsort(sequence, kind="stable")
        same = sequence[order]
        first = np.concatenate(([True], same[1:] != same[:-1]))
        begins = first | cleared[order]
        local = np.cumsum(begins) - 1
        numbers = self._next_epoch + np.arange(int(local[-1]) + 1)
        self._next_epoch += len(numbers)
        for at in np.flatnonzero(first & ~cleared[order]).tolist():
            before = self._epochs.get(int(same[at]))
            if before is not None:
                numbers[local[at]] = before
        epoch = np.empty(len(sequence), np.int64)
        epoch[order] = numbers[local]
        last = np.concatenate((first[1:], [True]))
        for at in np.flatnonzero(last).tolist():
            self._epochs[int(same[at])] = int(numbers[local[at]])
        return epoch

    @staticmethod
    def _defaults(epoch: Ints, defaults: dict[int, int]) -> Ints:
        """Return the default of each epoch, 0 without one."""
        if not defaults or not len(epoch):
            return np.zeros(len(epoch), np.int64)
        used, index = np.unique(epoch, return_inverse=True)
        table = np.array([defaults.get(number, 0) for number in used.tolist()], np.int64)
        values: Ints = table[index.reshape(-1)]
        return values

    def _learn(
        self, data: Any, rare: list[tuple[int, int, int, int]], sequence: Ints, epoch: Ints
    ) -> None:
        """Store the texts, tracks, clocks and defaults of the packets that have them, in order."""
        for row, kind, first, end in rare:
            message = fields(data, first, end)
            if kind == _INTERNED:
                self._intern(data, message, int(epoch[row]))
            elif kind == _TRACK:
                self.tracks.add(data, message)
            elif kind == _CLOCKS:
                self.clocks.snapshot(data, message, int(sequence[row]), row)
            else:
                clock = number(message, _CLOCK)
                if clock:
                    self._default_clock[int(epoch[row])] = clock
                for span in spans(message, _EVENT):
                    uuid = number(fields(data, *span), _UUID)
                    if uuid:
                        self._default_track[int(epoch[row])] = uuid

    def _intern(self, data: Any, message: Any, epoch: int) -> None:
        for kind in (_CATEGORIES, _NAMES, _DETAIL_NAMES, _TEXTS):
            for span in spans(message, kind):
                entry = fields(data, *span)
                self._interned[kind, epoch, number(entry, 1)] = self.code(text(data, entry, 2))
        if len(self._interned) > MOST_TEXTS:
            raise WireError(f"more than {MOST_TEXTS:,} texts")

    def _coded(self, kind: int, epoch: Ints, numbers: Ints) -> Ints:
        """Return the code of each text that an event refers to by its number in its epoch; -1 for none."""
        codes = np.full(len(numbers), _NOTHING, np.int64)
        here = np.flatnonzero((numbers > 0) & (numbers < _IDS))
        if not len(here):
            return codes
        # one number for both: sorting pairs takes ten times as long
        keys, index = np.unique(epoch[here] * _IDS + numbers[here], return_inverse=True)
        values = [self._interned.get((kind, *divmod(key, _IDS)), _NOTHING) for key in keys.tolist()]
        codes[here] = np.array(values, np.int64)[index.reshape(-1)]
        return codes

    def _own(self, raw: Bytes, codes: Ints, start: Ints, size: Ints) -> None:
        """Fill in the codes of texts that are inside the events themselves."""
        here = np.flatnonzero(start >= 0)
        if len(here):
            column = texts(raw, start[here], size[here]).cast(pl.Categorical)
            distinct = column.unique().cast(pl.String).to_list()
            table = {word: self.code(word) for word in distinct if word is not None}
            codes[here] = (
                column.cast(pl.String).replace_strict(table, return_dtype=pl.Int64).to_numpy()
            )

    def _decode(self, raw: Bytes, start: Ints, size: Ints, time: Ints, epoch: Ints) -> Events:
        count = len(start)
        numbers = {name: np.zeros(count, np.int64) for name in (_TYPE, _UUID, _NAME_ID, _CATEGORY)}
        flow = np.zeros(count, np.int64)
        value = np.full(count, np.nan)
        named = {
            name: (np.full(count, _NOTHING, np.int64), np.zeros(count, np.int64))
            for name in (_NAME, _CATEGORY_TEXT)
        }
        details: list[tuple[Ints, Ints, Ints]] = []
        for got in passes(raw, start, start + size):
            for name, column in numbers.items():
                here = (got.number == name) & (got.kind == VARINT)
                if name == _CATEGORY:  # of several categories the first is the event's
                    here &= column[got.row] == 0
                column[got.row[here]] = got.value[here].view(np.int64)
            self._packed(raw, got, numbers[_CATEGORY])
            for name, (at, length) in named.items():
                here = (got.number == name) & (got.kind == LENGTH)
                here &= at[got.row] < 0
                at[got.row[here]] = got.value[here].view(np.int64)
                length[got.row[here]] = got.size[here]
            for name in (_FLOW, _FLOW_END):
                here = (got.number == name) & (got.kind == FIXED64)
                flow[got.row[here]] = got.value[here].view(np.int64)
            for name in (_FLOW_OLD, _FLOW_END_OLD):
                here = (got.number == name) & (got.kind == VARINT)
                flow[got.row[here]] = got.value[here].view(np.int64)
            here = (got.number == _VALUE) & (got.kind == FIXED64)
            value[got.row[here]] = got.value[here].view(np.float64)
            here = (got.number == _COUNT) & (got.kind == VARINT)
            value[got.row[here]] = got.value[here].view(np.int64)
            here = (got.number == _DETAIL) & (got.kind == LENGTH)
            if here.any():
                details.append((got.row[here], got.value[here].view(np.int64), got.size[here]))
        uuid = numbers[_UUID]
        uuid = np.where(uuid == 0, self._defaults(epoch, self._default_track), uuid)
        names = self._coded(_NAMES, epoch, numbers[_NAME_ID])
        category = self._coded(_CATEGORIES, epoch, numbers[_CATEGORY])
        self._own(raw, names, *named[_NAME])
        self._own(raw, category, *named[_CATEGORY_TEXT])
        events = Events(uuid, time, numbers[_TYPE], names, category, flow, value)
        if details:
            row, at, length = (np.concatenate(parts) for parts in zip(*details, strict=True))
            events.details = self._details(raw, row, at, length, epoch)
        return events

    @staticmethod
    def _packed(raw: Bytes, got: Any, column: Ints) -> None:
        """Use the first number of packed lists of categories."""
        here = (got.number == _CATEGORY) & (got.kind == LENGTH) & (got.size > 0)
        if here.any():
            first = got.value[here].view(np.int64)
            column[got.row[here]] = varints(raw, first, first + got.size[here])[0].view(np.int64)

    def _details(
        self, raw: Bytes, row: Ints, start: Ints, size: Ints, epoch: Ints
    ) -> dict[str, tuple[Ints, Ints, Ints]]:
        """Return the wanted details of events by name: rows, numbers, codes of texts."""
        count = len(row)
        of = epoch[row]
        ids = {number_: np.zeros(count, np.int64) for number_ in (1, 17)}
        value = np.zeros(count, np.int64)
        own = {
            number_: (np.full(count, _NOTHING, np.int64), np.zeros(count, np.int64))
            for number_ in (10, 6)
        }
        for got in passes(raw, start, start + size):
            for number_, column in ids.items():
                here = (got.number == number_) & (got.kind == VARINT)
                column[got.row[here]] = got.value[here].view(np.int64)
            for number_ in (2, 3, 4, 7):
                here = (got.number == number_) & (got.kind == VARINT)
                value[got.row[here]] = got.value[here].view(np.int64)
            for number_, (at, length) in own.items():
                here = (got.number == number_) & (got.kind == LENGTH)
                at[got.row[here]] = got.value[here].view(np.int64)
                length[got.row[here]] = got.size[here]
        name = self._coded(_DETAIL_NAMES, of, ids[1])
        self._own(raw, name, *own[10])
        wanted = [self._codes[word] for word in DETAILS if word in self._codes]
        kept = np.flatnonzero(np.isin(name, wanted))
        words = self._coded(_TEXTS, of[kept], ids[17][kept])
        self._own(raw, words, own[6][0][kept], own[6][1][kept])
        values = {}
        for code in np.unique(name[kept]).tolist():
            here = name[kept] == code
            at = kept[here]
            values[self.words[code]] = (row[at], value[at], words[here])
        return values
