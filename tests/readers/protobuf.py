"""Writes protobuf messages, so that tests make the files that readers must read, and must refuse."""

from __future__ import annotations

import struct


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while True:
        low, value = value & 0x7F, value >> 7
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def field(number: int, value: int | float | str | bytes) -> bytes:
    """A number as a varint, a float as fixed64, a text or a message with its length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def message(*pairs: tuple[int, int | float | str | bytes]) -> bytes:
    return b"".join(field(number, value) for number, value in pairs)


STAT_NAMES = ("correlation_id", "hlo_op", "hlo_module", "program_id", "kernel_details", "step_num",
              "memcpy_details", "run_id", "Hlo Proto", "flops", "profile_start_time")  # fmt: skip


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
