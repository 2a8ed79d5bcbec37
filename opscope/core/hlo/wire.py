"""Read and write the protobuf wire format: the fields of one message, without its schema.

The encoding is described at protobuf.dev/programming-guides/encoding. The bytes are untrusted: every length
is checked against the enclosing message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

#: A varint or fixed-width number, or the (start, end) of a string, message or packed list.
Value: TypeAlias = "int | tuple[int, int]"
Fields: TypeAlias = "dict[int, list[Value]]"

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_WIDTH: Final = {FIXED64: 8, FIXED32: 4}
#: Most fields of one message; a module of a large model has some hundred thousand.
MAX_FIELDS: Final = 1 << 24


class WireError(ValueError):
    """The bytes are not a protobuf message."""


def varint(data: Any, at: int, end: int) -> tuple[int, int]:
    """Return the unsigned number at ``at`` and the place of the byte after it. Raises WireError."""
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift > 63:
            raise WireError(f"a number is longer than 10 bytes, at byte {at}")
    raise WireError(f"the message ends inside a number, at byte {at}")


def walk(data: Any, start: int, end: int) -> Iterator[tuple[int, Value, int, int]]:
    """Yield (field number, value, where it begins, where it ends) of each field of ``data[start:end]``.

    ``data``: bytes, or a mapped file. Raises WireError.
    """
    at = start
    while at < end:
        begin, tag = at, data[at]
        if tag < 0x80:
            at += 1
        else:
            tag, at = varint(data, at, end)
        number, kind = tag >> 3, tag & 7
        if not number:
            raise WireError(f"a field has the number 0, at byte {at}")
        if kind == VARINT:
            value, at = varint(data, at, end)
            yield number, value, begin, at
        elif kind == LENGTH:
            size, at = varint(data, at, end)
            if size > end - at:
                raise WireError(f"a field has {size} bytes, but {end - at} are left, at byte {at}")
            inside = (at, at + size)
            at += size
            yield number, inside, begin, at
        elif kind in _WIDTH:
            width = _WIDTH[kind]
            if end - at < width:
                raise WireError(f"the message ends inside a number, at byte {at}")
            at += width
            yield number, int.from_bytes(data[at - width : at], "little"), begin, at
        else:
            raise WireError(f"a field has the unknown wire type {kind}, at byte {at}")


def fields(data: bytes, start: int, end: int) -> Fields:
    """Return field number → values in order, for all fields of a message. Raises WireError."""
    values_of_fields: Fields = {}
    for count, (number, value, _, _) in enumerate(walk(data, start, end)):
        if count >= MAX_FIELDS:
            raise WireError(f"the message has more than {MAX_FIELDS} fields")
        values_of_fields.setdefault(number, []).append(value)
    return values_of_fields


def spans(message: Fields, number: int) -> list[tuple[int, int]]:
    """Return the (start, end) of each message or text in a field; numbers in it are left out."""
    return [value for value in message.get(number, ()) if isinstance(value, tuple)]


def number(message: Fields, field: int, default: int = 0) -> int:
    """Return the last number in a field as a signed int64; ``default`` without one."""
    for value in reversed(message.get(field, ())):
        if isinstance(value, int):
            return value - (1 << 64) if value >= 1 << 63 else value
    return default


def text(data: bytes, message: Fields, field: int) -> str:
    """Return the last string in a field, ``""`` without one; bytes that are not UTF-8 are replaced."""
    text_spans = spans(message, field)
    return data[slice(*text_spans[-1])].decode("utf-8", "replace") if text_spans else ""


def numbers(data: Any, message: Fields, field: int) -> tuple[int, ...]:
    """Return the values of a repeated int64 field, packed or not. Raises WireError."""
    values: list[int] = []
    for value in message.get(field, ()):
        if isinstance(value, int):
            values.append(value)
            continue
        at, end = value
        while at < end:
            value_read, at = varint(data, at, end)
            values.append(value_read)
    return tuple(value - (1 << 64) if value >= 1 << 63 else value for value in values)


def encoded(value: int) -> bytes:
    """Return the shortest varint of a number that is not negative."""
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def tag(number: int, kind: int) -> bytes:
    """Return the tag of a field."""
    return encoded(number << 3 | kind)


def field(number: int, value: int | bytes | str) -> bytes:
    """Return a field: a varint of a number, or bytes with their length."""
    if isinstance(value, int):
        return tag(number, VARINT) + encoded(value)
    content = value.encode("utf-8", "replace") if isinstance(value, str) else value
    return tag(number, LENGTH) + encoded(len(content)) + content
