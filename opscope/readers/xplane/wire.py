"""Decode many protobuf messages of one type together: NumPy passes over fields, not over messages.

One pass reads one field of every message that has any left. An event has four to twenty fields, so a
million events take twenty passes; a Python loop would take 40 million iterations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.hlo.wire import FIXED32, FIXED64, LENGTH, VARINT, WireError, varint
from opscope.core.tables.intervals import Ints

Bytes = NDArray[np.uint8]
#: Largest number of fields in one message; a trace's messages have some twenty, and each costs a pass.
MAX_FIELDS: Final = 4096


@dataclass(slots=True)
class Field:
    """The values that one pass read: their messages, field numbers, wire types and values.

    ``value`` is the 64 bits of a number, or the start of a value with a length, whose bytes are ``size``.
    """

    row: Ints
    number: Ints
    kind: Ints
    value: NDArray[np.uint64]
    size: Ints

    def of(self, number: int, *kinds: int) -> NDArray[np.bool_]:
        """Return which values belong to that field and have one of the wire types."""
        flags: NDArray[np.bool_] = (self.number == number) & np.isin(self.kind, kinds)
        return flags


def entries(
    data: bytes, start: int, end: int, field: int
) -> tuple[Ints, Ints, list[tuple[int, int, int]]]:
    """Return the starts and ends of a repeated field's messages, and the other fields.

    The other fields are (number, value or start, size). Each message begins where the one before ends, so
    this is the only loop: 0.2 µs a message.
    """
    tag = field << 3 | LENGTH
    starts: list[int] = []
    ends: list[int] = []
    others: list[tuple[int, int, int]] = []
    at = start
    while at < end:
        byte = data[at]
        if byte == tag and at + 1 < end and data[at + 1] < 0x80:  # by far the most common case
            first = at + 2
            at = first + data[at + 1]
            starts.append(first)
            ends.append(at)
            continue
        at, number, kind, value, size = _one(data, at, end)
        if number == field and kind == LENGTH:
            starts.append(value)
            ends.append(value + size)
        else:
            others.append((number, value, size))
    if at > end:
        raise WireError(f"a message extends past byte {end}")
    return np.array(starts, np.int64), np.array(ends, np.int64), others


def _one(data: bytes, at: int, end: int) -> tuple[int, int, int, int, int]:
    tag, at = varint(data, at, end)
    number, kind = tag >> 3, tag & 7
    if not number:
        raise WireError(f"field number 0 at byte {at}")
    value, size = 0, 0
    if kind == VARINT:
        value, at = varint(data, at, end)
    elif kind == LENGTH:
        size, value = varint(data, at, end)
        at = value + size
    elif kind in (FIXED64, FIXED32):
        width = 8 if kind == FIXED64 else 4
        value = int.from_bytes(data[at : at + width], "little")
        at += width
    else:
        raise WireError(f"unknown wire type {kind} at byte {at}")
    if at > end:
        raise WireError(f"a field extends past byte {end}")
    return at, number, kind, value, size


def passes(data: Bytes, start: Ints, end: Ints) -> Iterator[Field]:
    """Yield the first field of every message, then the second of the messages that have one, and so on.

    Raises WireError if a message is malformed.
    """
    at = start.copy()
    row = np.flatnonzero(at < end).astype(np.int64)
    for _ in range(MAX_FIELDS):
        if not len(row):
            return
        here, stop = at[row], end[row]
        tag, here = varints(data, here, stop)
        number, kind = (tag >> np.uint64(3)).astype(np.int64), (tag & np.uint64(7)).astype(np.int64)
        value = np.zeros(len(row), np.uint64)
        size = np.zeros(len(row), np.int64)
        counted = (kind == VARINT) | (kind == LENGTH)
        if counted.all():
            value, here = varints(data, here, stop)
        else:
            value[counted], here[counted] = varints(data, here[counted], stop[counted])
            for which, width in ((FIXED64, 8), (FIXED32, 4)):
                fixed = np.flatnonzero(kind == which)
                if len(fixed):
                    value[fixed], here[fixed] = _fix(data, here[fixed], stop[fixed], width)
                    counted[fixed] = True
            if not counted.all():
                raise WireError(f"unknown wire type {kind[~counted][0]}")
        long = np.flatnonzero(kind == LENGTH)
        if len(long):
            room = (stop - here)[long]
            if np.any(value[long] > room.astype(np.uint64)):
                raise WireError("a field extends past its message")
            size[long] = value[long].astype(np.int64)
            value[long] = here[long].astype(np.uint64)
            here[long] += size[long]
        if np.any(number == 0):
            raise WireError("field number 0")
        yield Field(row, number, kind, value, size)
        at[row] = here
        row = row[here < stop]
    if len(row):
        raise WireError(f"a message with over {MAX_FIELDS} fields")


def varints(data: Bytes, at: Ints, end: Ints) -> tuple[NDArray[np.uint64], Ints]:
    """Return the number at each offset, and the offset after it."""
    if np.any(at >= end):
        raise WireError("a message ends inside a field")
    byte = data[at]
    value = (byte & np.uint8(0x7F)).astype(np.uint64)
    after = at + 1
    more = np.flatnonzero(byte >= 0x80)
    shift = 7
    while len(more):
        here = after[more]
        if shift > 63 or np.any(here >= end[more]):
            raise WireError("a number does not end")
        byte = data[here]
        value[more] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(shift)
        after[more] = here + 1
        more = more[byte >= 0x80]
        shift += 7
    return value, after


def _fix(data: Bytes, at: Ints, end: Ints, width: int) -> tuple[NDArray[np.uint64], Ints]:
    if np.any(end - at < width):
        raise WireError("a message ends inside a number")
    value = np.zeros(len(at), np.uint64)
    for byte in range(width):
        value |= data[at + byte].astype(np.uint64) << np.uint64(8 * byte)
    return value, at + width


def texts(data: Bytes, start: Ints, size: Ints) -> pl.Series:
    """Return the strings at these offsets; invalid UTF-8 is replaced."""
    if not len(start):
        return pl.Series([], dtype=pl.String)
    total, first = int(size.sum()), int(start.min())
    if int((start + size).max()) - first > 4 * total:
        ends = np.cumsum(size)
        data = data[np.repeat(start - ends + size, size) + np.arange(total)]
        start = ends - size
    else:  # gathering costs three times as much as slicing
        data = data[first : int((start + size).max())]
        start = start - first
    data_bytes = data.tobytes()
    # slices of one value share its bytes
    texts_read = pl.select(
        pl.lit(data_bytes).bin.slice(pl.Series(start), pl.Series(size))
    ).to_series()
    try:
        checked: pl.Series = texts_read.cast(pl.String)
        return checked
    except pl.exceptions.ComputeError:
        mended = [text.decode("utf-8", "replace") for text in texts_read.to_list()]
        return pl.Series(mended, dtype=pl.String)
