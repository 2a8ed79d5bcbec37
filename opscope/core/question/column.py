"""A column and a frame as documented: name, unit, meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

#: Every unit that a column can have, with its explanation.
UNITS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ns": "nanoseconds; points in time are on the trace's clock",
        "bytes": "bytes",
        "J": "joules",
        "W": "watts",
        "FLOP": "floating-point operations, 2 for a multiply-add",
        "FLOP/s": "floating-point operations per second",
        "bytes/s": "bytes per second",
        "FLOP/byte": "floating-point operations per byte",
        "fraction": "a part of a whole; 1 is the whole",
        "ppm": "parts per million",
        "1/s": "how many per second",
        "count": "how many there are",
        "value": "a value in the unit of its counter; bytes and times in bytes and ns",
        "number": "an identifier or an index",
        "text": "text",
        "yes/no": "true or false",
    }
)


@dataclass(frozen=True, slots=True)
class Column:
    """A documented column: its name, its unit (one of ``UNITS``) and its meaning."""

    name: str
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame: the call that returns it (``totals_by("op")``), the meaning of a row, the columns in order."""

    call: str
    row: str
    columns: tuple[Column, ...]

    @property
    def method(self) -> str:
        """The name of the Profile method that returns this frame."""
        return self.call.partition("(")[0]
