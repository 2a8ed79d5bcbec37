"""Writes many protobuf messages of one form at once: fields have fixed widths, so NumPy fills them.

A varint may have more bytes than it needs (Protocol Buffers, encoding): continued bytes that are zero. So
each field takes the same number of bytes in all messages of a form, and a message is a row of an array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opscope.core.hlo.wire import FIXED64, LENGTH, VARINT, tag

Bytes = NDArray[np.uint8]
#: Bytes of a padded varint: 63 bits, 35 bits, 14 bits.
TIME: Final = 9
NUMBER: Final = 5
SIZE: Final = 2


@dataclass(frozen=True, slots=True)
class Column:
    """A field whose value differs by row. ``width``: its bytes as a padded varint; 0: 8 bytes as they are."""

    number: int
    values: NDArray[Any]
    width: int = NUMBER


Part: TypeAlias = "bytes | Column"
#: A part, or a message inside: the number of its field, and its parts.
Piece: TypeAlias = "Part | tuple[int, Sequence[Any]]"


def rows(parts: Sequence[Piece], count: int) -> Bytes:
    """Return ``count`` messages, a row each, of equal length."""
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
    """Return the messages of several forms in one order. Each form has the places of its rows in it."""
    size = np.zeros(count, np.int64)
    for places, rows_made in forms:
        size[places] = rows_made.shape[1]
    begin = np.cumsum(size) - size
    data = np.empty(int(size.sum()), np.uint8)
    for places, rows_made in forms:
        if len(places):
            data[begin[places][:, None] + np.arange(rows_made.shape[1])] = rows_made
    return data.data
