"""Find the records in buffers of CUPTI's activity: each kind has its own size, and there is no index.

A record's position follows from the sizes of all records before it. So NumPy moves many walkers at once, one
record at a time. One walker starts at each buffer; in a large buffer, more start at positions that look like
a record with a possible time. Each walks to the start of the next walker. If it arrives exactly there, the
next one started right; if not, the next one is dropped, and its stretch is walked record by record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opscope.core.cupti.layouts import (
    KINDS,
    SLOT,
    Layout,
    UnknownVersion,
    candidates,
    every,
    known,
    of_sizes,
)

Buffer: TypeAlias = "bytes | bytearray | memoryview | NDArray[np.uint8]"
_Ints: TypeAlias = NDArray[np.int64]

#: Stretches shorter than this many slots are walked record by record: 0.1 µs each.
_SMALL: Final = 1 << 12
#: Slots between the starts of walkers. With fewer slots there are more walkers, and placing a walker takes as
#: long as moving it by ten records. With more slots there are more moves, each of which takes 3 µs besides
#: the walkers' time.
_PIECE: Final = 1024
#: Moves of the walkers between two checks of which have arrived.
_MOVES: Final = 16
#: Times of a buffer's records differ by less than this many units of 2^32 ns: 4.3 hours.
_HIGH: Final = 3600
#: The number of buffers that are checked against the version's own layout.
_FIRST: Final = 4
#: A layout is chosen by at most this many bytes of each buffer.
_TRIED: Final = 1 << 20


@dataclass(frozen=True)
class Walked:
    """The records of a buffer: their ``places`` (in slots of 8 bytes), their ``kinds``, and ``end``, the
    slot after the last. ``unread``: bytes after it. ``unknown``: the kind that stopped the walk; None if
    nothing did, or if the last record is incomplete."""

    places: _Ints
    kinds: NDArray[np.uint32]
    end: int
    unread: int
    unknown: int | None


@dataclass(frozen=True)
class Region:
    """The records of several buffers in one block of memory; places and ends are numbers of its slots.

    ``reached``: for each buffer the slot after its last record. ``kinds``: the kinds of the records at
    ``places``.
    """

    places: _Ints
    kinds: NDArray[np.uint32]
    reached: _Ints


def walk(buffer: Buffer, layout: Layout) -> Walked:
    """Return the records of a buffer. It ends at the first kind without a layout, and never fails."""
    data = np.frombuffer(buffer, np.uint8)
    count = len(data) // SLOT
    walked = walk_region(data, np.zeros(1, np.int64), np.array([count]), layout)
    end = int(walked.reached[0])
    return Walked(
        walked.places, walked.kinds, end, len(data) - end * SLOT, stopper(data, end, count, layout)
    )


def walk_region(data: NDArray[np.uint8], begins: _Ints, ends: _Ints, layout: Layout) -> Region:
    """Return the records of the buffers that lie at slots [begins, ends) of ``data``, in order."""
    count = len(data) // SLOT
    words = data[: count * SLOT].view("<u4")
    if not words.flags.aligned:
        words = words.copy()
    if int((ends - begins).sum()) < _SMALL:
        sizes = _sizes(layout)
        lists = [
            _plain(words, begin, end, end, sizes)
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
        ]
        places = np.array(
            [position for places_of_list, _ in lists for position in places_of_list], np.int64
        )
        reached = np.array([end for _, end in lists], np.int64)
    else:
        places, reached = _Walkers(words, begins, ends, layout).arrived()
    return Region(places, words[places * 2], reached)


def stopper(data: NDArray[np.uint8], reached: int, end: int, layout: Layout) -> int | None:
    """Return the kind that stopped a walk before slot ``end``; None if the record there is incomplete."""
    if reached >= end:
        return None
    kind = int(data[reached * SLOT : reached * SLOT + 4].view("<u4")[0])
    return None if kind < KINDS and layout.slots[kind] else kind


def records(buffer: Buffer, version: int) -> dict[int, NDArray[Any]]:
    """Return by kind the records of a buffer that CUPTI ``version`` filled, as structured arrays (copies).

    Raises UnknownVersion if no known layout of that version fits the records.
    """
    layout = chosen(version, [buffer])
    return taken(buffer, walk(buffer, layout), layout)


def taken(
    buffer: Buffer, walked: Walked | Region, layout: Layout, wanted: Iterable[int] | None = None
) -> dict[int, NDArray[Any]]:
    """Return by kind the walked records of kinds with fields, as structured arrays (copies).

    ``wanted``: the kinds; None: all.
    """
    data = np.frombuffer(buffer, np.uint8)
    records: dict[int, NDArray[Any]] = {}
    kinds = np.flatnonzero(np.bincount(walked.kinds, minlength=1)).tolist()
    for kind in kinds if wanted is None else wanted:
        dtype = layout.dtypes.get(kind)
        if dtype is None:
            continue
        slot_count = (len(data) - dtype.itemsize) // SLOT + 1
        # as plain bytes: structured types are copied field by field, which is slower
        plain = np.dtype((np.void, dtype.itemsize))
        slots: NDArray[Any] = np.ndarray((slot_count,), plain, data, strides=(SLOT,))
        records[kind] = slots[walked.places[walked.kinds == kind]].view(dtype)
    return records


def chosen(
    version: int, buffers: Iterable[Buffer], sizes: Mapping[int, int] | None = None
) -> Layout:
    """Return the layout of a version's records; if its number does not decide, the first layout that fits.

    ``sizes``: bytes of the records of some kinds, as CUPTI reported them. They take precedence over the
    version, and records of kinds without a layout can then be skipped. Without them, if the first records do
    not fit the version's own layout, the newest layout that fits is chosen. Raises UnknownVersion if no
    layout fits.
    """
    told = {
        kind: size // SLOT
        for kind, size in (sizes or {}).items()
        if 0 <= kind < KINDS - 1 and size > 0 and size % SLOT == 0
    }
    own = candidates(version)
    # first the layouts that already have the reported sizes
    ordered = sorted(
        own, key=lambda layout: any(layout.slots[kind] not in (0, told[kind]) for kind in told)
    )
    with_told = [of_sizes(layout, told) for layout in ordered]
    layouts = [layout for layout in with_told if layout is not None]
    if own[0].exact and layouts:
        first = list(islice(buffers, _FIRST))
        others = [] if told else every()
        fitting = (
            layout for layout in (*layouts, *others) if all(fits(each, layout) for each in first)
        )
        return next(fitting, layouts[0])  # no layout has them: the records are damaged
    tried = list(buffers)
    layouts = [layout for layout in layouts if all(fits(buffer, layout) for buffer in tried)]
    if layouts:
        return layouts[0]
    number, cuda = known()[-1]
    raise UnknownVersion(
        f"the records of CUPTI's version {version} have none of the known layouts (the newest is that of "
        f"version {number}, CUDA {cuda})"
    )


def fits(buffer: Buffer, layout: Layout) -> bool:
    """Whether a buffer's first records have known kinds, fill the buffer, and have possible times."""
    all_bytes = np.frombuffer(buffer, np.uint8)
    data = all_bytes[:_TRIED]
    walked = walk(data, layout)
    if walked.unknown is not None or (walked.unread and len(data) == len(all_bytes)):
        return False
    high = data[: len(data) // SLOT * SLOT].view("<u4")
    at = layout.times[walked.kinds]
    places = walked.places[at > 0] * 2 + at[at > 0]
    times = high[places + 1].astype(np.int64)
    times = times[(times != 0) | (high[places] != 0)]  # 0 is a time that CUPTI did not take
    if len(times) and int(np.ptp(times)) > _HIGH:
        return False
    for kind, records in taken(data, walked, layout).items():
        names = layout.dtypes[kind].names or ()
        if "end" in names and (records["end"] < records["start"]).any():
            return False
    return True


def _sizes(layout: Layout) -> dict[int, int]:
    """By kind the size of a record in slots."""
    return {kind: size for kind, size in enumerate(layout.slots.tolist()) if size}


def _plain(
    words: NDArray[np.uint32], at: int, stop: int, end: int, sizes: Mapping[int, int]
) -> tuple[list[int], int]:
    """Walk record by record from slot ``at`` to ``stop``; return the positions, and the slot reached. Stops
    before a kind without a layout, and before a record that does not end by ``end``."""
    kinds = words.data
    places = []
    while at < stop:
        size = sizes.get(kinds[2 * at], 0)
        if not size or at + size > end:
            break
        places.append(at)
        at += size
    return places, at


class _Walkers:
    """Walkers over the buffers at [begins, ends) of a region, all in slots."""

    def __init__(
        self, words: NDArray[np.uint32], begins: _Ints, ends: _Ints, layout: Layout
    ) -> None:
        self._words, self._layout, self._ends = words, layout, ends
        self._sizes = _sizes(layout)
        self._time = _first_time(words, int(begins[0]), layout)
        piece_counts = np.maximum((ends - begins) // _PIECE, 1)
        buffer = np.repeat(np.arange(len(begins)), piece_counts)
        number = np.arange(len(buffer)) - np.repeat(
            np.cumsum(piece_counts) - piece_counts, piece_counts
        )
        start = begins[buffer] + number * _PIECE
        inner = np.flatnonzero(number)
        start[inner] = self._likely(start[inner], ends[buffer[inner]])
        is_valid = start >= 0
        #: for each walker: where it started, whether it is its buffer's last, and where it should arrive
        buffer, self._start = buffer[is_valid], start[is_valid]
        self._last = np.append(buffer[1:] != buffer[:-1], True)
        self._stop = np.where(self._last, ends[buffer], np.append(self._start[1:], 0))

    def arrived(self) -> tuple[_Ints, _Ints]:
        """Return the positions of all records, and for each buffer the slot after its last record."""
        places, first, exits = self._move()
        begins = np.flatnonzero(np.append(True, self._last[:-1]))
        ends = np.flatnonzero(self._last) + 1
        reached = exits[ends - 1]
        if (exits == self._stop).all():
            return places, reached
        keep = np.ones(len(places), bool)
        over = np.flatnonzero((ends - begins == 1) & (reached > self._ends))
        # a single walker is right even if its last record is incomplete
        last = first[ends[over]] - 1
        reached[over], keep[last] = places[last], False
        # a walker missed its stop: the next one started wrong, or it met bytes that are not a record
        late = np.append(0, np.cumsum(exits != self._stop))
        mended: list[int] = []
        for buffer in np.flatnonzero((late[ends] > late[begins]) & (ends - begins > 1)).tolist():
            begin, end = int(begins[buffer]), int(ends[buffer])
            right, more, reached[buffer] = self._resolve(begin, end, int(self._ends[buffer]), exits)
            mended += more
            for walker in range(begin, end):
                if walker not in right:
                    keep[first[walker] : first[walker + 1]] = False
            of = slice(first[begin], first[end])
            keep[of] &= places[of] < reached[buffer]
        return np.sort(np.concatenate((places[keep], np.array(mended, np.int64)))), reached

    def _move(self) -> tuple[_Ints, _Ints, _Ints]:
        """Move all walkers to the end. Returns the positions of each walker's records, one walker after
        another; where each walker's positions begin (one more for the end); and the slot that each
        reached: at its stop, or past it, or at bytes that are not a record."""
        sizes = self._layout.slots * 2
        at, stop, walker = self._start * 2, self._stop * 2, np.arange(len(self._start))
        exits = np.empty(len(at), np.int64)
        counts = np.zeros(len(at), np.int64)
        blocks = []
        while len(at):
            seen = np.empty((_MOVES + 1, len(at)), np.int64)
            for move in range(_MOVES):
                seen[move] = at
                at = at + sizes.take(self._words.take(at, mode="clip"), mode="clip")
            seen[_MOVES] = at
            took = (seen[:-1] < stop) & (seen[1:] != seen[:-1])
            record_counts = took.sum(0)
            exits[walker] = seen[record_counts, np.arange(len(at))]
            blocks.append((walker, counts[walker], seen[:-1], took))
            counts[walker] += record_counts
            on = (record_counts == _MOVES) & (at < stop)
            at, stop, walker = at[on], stop[on], walker[on]
        first = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
        places = np.empty(int(first[-1]), np.int64)
        for of, before, seen, took in blocks:
            target = first[of] + before + np.arange(_MOVES)[:, None]
            places[target[took]] = seen[took]
        return places // 2, first, exits // 2

    def _resolve(
        self, begin: int, end: int, limit: int, exits: _Ints
    ) -> tuple[set[int], list[int], int]:
        """Return the walkers of a buffer that started at a record, the positions of the records between
        them, and the slot after the last complete record, ``limit`` at most."""
        starts = self._start[begin:end].tolist()
        right: set[int] = set()
        mended: list[int] = []
        at = starts[0]
        while True:
            index = bisect_left(starts, at)
            if index < len(starts) and starts[index] == at:
                right.add(begin + index)
                stop = int(exits[begin + index])
                if stop > limit:  # the last record is incomplete
                    return right, mended, self._to(at, limit, limit)[1]
            else:
                upto = starts[index] if index < len(starts) else limit
                places, stop = self._to(at, upto, limit)
                mended += places
            if stop == limit or not self._to(stop, stop + 1, limit)[0]:
                return right, mended, stop
            at = stop

    def _to(self, at: int, stop: int, limit: int) -> tuple[list[int], int]:
        return _plain(self._words, at, stop, limit, self._sizes)

    def _likely(self, at: _Ints, ends: _Ints) -> _Ints:
        """For each slot, the next one that looks like the start of a record with a time; -1 for none. Another
        record, or the buffer's end, must come after it."""
        if not len(at):
            return at
        wide = int(self._layout.slots.max())
        places = at[:, None] + np.arange(wide)
        sizes, good, timed = self._plausible(places, ends[:, None])
        good &= timed
        row, column = np.nonzero(good)
        after = places[row, column] + sizes[row, column]
        good[row, column] = (after == ends[row]) | self._plausible(after, ends[row])[1]
        first = good.argmax(1)
        return np.where(good.any(1), at + first, -1)

    def _plausible(
        self, at: _Ints, ends: _Ints
    ) -> tuple[_Ints, NDArray[np.bool_], NDArray[np.bool_]]:
        """The size of the record at each slot, whether it can be a record, and whether it has a time. It
        can be a record if it is complete and its time is near the time of the first record."""
        words, layout = self._words, self._layout
        kinds = words.take(at * 2, mode="clip")
        sizes = layout.slots.take(kinds, mode="clip")
        time_offset = layout.times.take(kinds, mode="clip")
        high = words.take(at * 2 + time_offset + 1, mode="clip") - np.uint32(self._time)
        timed = time_offset > 0
        return sizes, (sizes > 0) & (at + sizes <= ends) & (~timed | (high < _HIGH)), timed


def _first_time(words: NDArray[np.uint32], begin: int, layout: Layout) -> int:
    """The upper half of the first time after a slot, less half of ``_HIGH``."""
    count = len(words) // 2
    for slot in _plain(words, begin, min(count, begin + _SMALL), count, _sizes(layout))[0]:
        time = int(layout.times[min(int(words[2 * slot]), KINDS - 1)])
        if time and words[2 * slot + time + 1]:
            return max(0, int(words[2 * slot + time + 1]) - _HIGH // 2)
    return 0
