"""Write protobuf messages, for tests that make valid and invalid files for the readers."""

from __future__ import annotations

import struct

#: Ends of the names of files that are one protobuf message: XLA's, Perfetto's.
SUFFIXES = (".pb", ".pftrace")


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while True:
        low, value = value & 0x7F, value >> 7
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def field(number: int, value: int | float | str | bytes) -> bytes:
    """Encode a number as a varint, a float as fixed64, a text or a message with its length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def message(*pairs: tuple[int, int | float | str | bytes]) -> bytes:
    return b"".join(field(number, value) for number, value in pairs)


STAT_NAMES = ("correlation_id", "hlo_op", "hlo_module", "program_id", "kernel_details", "step_num",
              "memcpy_details", "run_id", "Hlo Proto", "flops", "profile_start_time",
              "allocator_name", "addr", "allocation_bytes", "bytes_allocated", "eager_op", "is_func",
              "_pt", "_p", "_ct", "_c", "tf_function_call", "device_ordinal")  # fmt: skip


def stat(name: str, value: int | float | str | bytes) -> bytes:
    place = 5 if isinstance(value, str) else 6 if isinstance(value, bytes) else 2
    if isinstance(value, int):
        place = 4
    return message((1, STAT_NAMES.index(name) + 1), (place, value))


def event(number: int, start_ps: int, duration_ps: int, **stats: int | float | str) -> bytes:
    return message(
        (1, number),
        (2, start_ps),
        (3, duration_ps),
        *(
            (4, stat(name.replace("Hlo_Proto", "Hlo Proto"), value))
            for name, value in stats.items()
        ),
    )


def plane(name: str, events: dict[int, str], lines: list[bytes], *more: tuple[int, bytes]) -> bytes:
    names = [message((1, n), (2, message((1, n), (2, text)))) for n, text in events.items()]
    stats = [
        message((1, n), (2, message((1, n), (2, text))))
        for n, text in enumerate(STAT_NAMES, start=1)
    ]
    return message(
        (2, name),
        *((3, one) for one in lines),
        *((4, one) for one in names),
        *((5, one) for one in stats),
        *more,
    )


def line(number: int, name: str, time_ns: int, *events: bytes) -> bytes:
    return message((1, number), (2, name), (3, time_ns), *((4, one) for one in events))


def space(*planes: bytes) -> bytes:
    return message(*((1, one) for one in planes), (4, "machine"))


# --------------------------------------------------------------- messages as trees, for damage

#: (the field's number, its wire type, its value: a number, bytes, or the fields of a nested message).
Node = list


def tree(data: bytes, depth: int = 0) -> list[Node]:
    """Return the fields of a message; a field that can be a message is parsed too. Raises ValueError."""
    found, at = [], 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if not number or kind not in (0, 1, 2, 5):
            raise ValueError
        if kind == 0:
            value, at = _varint(data, at)
        else:
            size, at = _varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value, at = data[at : at + size], at + size
            if at > len(data):
                raise ValueError
            if kind == 2 and depth < 16 and not all(32 <= byte < 127 for byte in value):
                value = _opened(value, depth + 1)  # printable bytes are a text
        found.append([number, kind, value])
    return found


def _opened(data: bytes, depth: int) -> bytes | list[Node]:
    try:
        return tree(data, depth)
    except (ValueError, IndexError):
        return data


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = data[at]
        value, at, shift = value | (byte & 0x7F) << shift, at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError


def encoded(nodes: list[Node]) -> bytes:
    """Encode the fields as a message again, with updated lengths."""
    out = b""
    for number, kind, value in nodes:
        data = encoded(value) if isinstance(value, list) else value
        out += varint(number << 3 | kind)
        out += varint(data) if kind == 0 else varint(len(data)) + data if kind == 2 else data
    return out


def places(nodes: list[Node]) -> list[tuple[list[Node], Node]]:
    """Return every field with the list that contains it."""
    found = []
    for node in nodes:
        found.append((nodes, node))
        if isinstance(node[2], list):
            found += places(node[2])
    return found


_NUMBERS = (0, 1, 2, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
_TEXTS = (
    b"",
    b"\xff\xfe",
    b"fusion",
    b"while",
    b"tuple",
    b"[" * 9999,
    b"/device:GPU:7",
    b"/host:CPU",
)


def damaged(nodes: list[Node], place: int, how: int, what: int) -> None:
    """Change one field: remove, repeat or renumber it, or replace its value."""
    everywhere = places(nodes)
    if not everywhere:
        return
    holder, node = everywhere[place % len(everywhere)]
    if how == 0:
        holder.remove(node)
    elif how == 1:
        holder.append(_copy(node))
    elif how == 2:
        node[0] = 1 + what % 60
    elif how == 3:
        node[1:] = _copy(everywhere[what % len(everywhere)][1])[1:]
    elif node[1] == 0:
        node[2] = _NUMBERS[what % len(_NUMBERS)]
    elif node[1] == 2 and isinstance(node[2], bytes):
        node[2] = _TEXTS[what % len(_TEXTS)]


def _copy(node: Node) -> Node:
    number, kind, value = node
    return [number, kind, [_copy(one) for one in value] if isinstance(value, list) else value]
