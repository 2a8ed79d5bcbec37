"""Read what each range means: dialects read each distinct text once, and rows with equal text share the
reading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.dialects import DIALECTS, STRIPPING, Reading, Role, own
from opscope.core.once import once
from opscope.core.schema import DIRECTIONS
from opscope.core.tables.columns import combined, distinct_values, gather, numbers_of, pieces
from opscope.core.tables.intervals import Ints
from opscope.core.tables.mapped import Mapped
from opscope.core.tables.numbers import Numbers
from opscope.core.tables.trace import Trace

ROLES: Final = get_args(Role)
ROLE: Final = {name: number for number, name in enumerate(ROLES)}


@dataclass(frozen=True)
class Meaning:
    """What the ranges of a trace mean. Immutable; ``ExtendedReadings`` makes a copy with more readings.

    ``reading``: per range row, the place of its reading in ``readings``. ``seq``, ``fwd_thread``: per row,
    from the columns if they have them, else from the text.
    """

    readings: tuple[Reading, ...]
    texts: tuple[str, ...]
    reading: NDArray[np.int32]
    seq: Numbers
    fwd_thread: Numbers

    @property
    def role(self) -> NDArray[np.uint8]:
        """The role of each range row, as a place in ROLES."""
        return self.each(lambda reading: ROLE[reading.role], np.uint8)[self.reading]

    @once
    def distinct(self) -> tuple[list[Reading], Ints]:
        """The readings without repetition, in order, and for each reading its place among these."""
        ids = np.fromiter(map(id, self.readings), np.int64, len(self.readings))
        _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
        order = np.argsort(first)
        places: Ints = np.argsort(order)[inverse.reshape(-1)]
        return [self.readings[number] for number in first[order].tolist()], places

    def each(self, value: Callable[[Reading], Any], dtype: Any = bool) -> NDArray[Any]:
        """Return a value for each reading; shared ones, as of a server's steps, are asked once."""
        distinct, number = self.distinct
        values: NDArray[Any] = np.array([value(reading) for reading in distinct], dtype)[number]
        return values

    @property
    def talks(self) -> NDArray[np.bool_]:
        """Whether each reading is of a collective."""
        return self.each(lambda reading: reading.direction == "communication")

    def phases(self, *names: str) -> NDArray[np.bool_]:
        """Return for each reading whether it is a phase with one of these names."""
        flags = self.each(lambda reading: reading.role == "phase")
        flags[flags] = [self.texts[code] in names for code in np.flatnonzero(flags).tolist()]
        return flags


class ExtendedReadings:
    """Collects readings to add to a meaning; they are numbered on from the meaning's own readings."""

    def __init__(self, meaning: Meaning) -> None:
        self._meaning = meaning
        self._readings: list[Reading] = []
        self._texts: list[str] = []

    def add(self, reading: Reading, text: str) -> int:
        """Add a reading with its text and return its number."""
        self._readings.append(reading)
        self._texts.append(text)
        return len(self._meaning.readings) + len(self._readings) - 1

    def reading(self, number: int) -> Reading:
        """Return the reading with that number, old or new."""
        old = self._meaning.readings
        return old[number] if number < len(old) else self._readings[number - len(old)]

    def text(self, number: int) -> str:
        """Return the text of the reading with that number, old or new."""
        old = self._meaning.texts
        return old[number] if number < len(old) else self._texts[number - len(old)]

    def meaning(self, rows: Ints, numbers: NDArray[np.integer[Any]]) -> Meaning:
        """Return the meaning with the new readings, and readings ``numbers`` for the range ``rows``."""
        meaning = self._meaning
        reading = meaning.reading.copy()
        reading[rows] = numbers
        return replace(
            meaning,
            readings=(*meaning.readings, *self._readings),
            texts=(*meaning.texts, *self._texts),
            reading=reading,
        )


def interpret(trace: Trace, mapped: Mapped | None = None) -> Meaning:
    """Read every distinct range text of ``trace``. ``mapped``: where long columns go, if not into memory."""
    ranges = trace["ranges"]
    stripped = _strip(ranges)
    text, seq = ranges["text"], trace.numbers("ranges", "seq")
    if stripped is not None:
        # not ``compact``: a list of all texts takes 0.2 GB where each of three million has its own
        codes = numbers_of(stripped["text"])(text)
        text = gather(stripped["stripped"], codes)
        if stripped["text_seq"].null_count() < len(stripped):
            named = gather(stripped["text_seq"], codes)
            seq = Numbers.of(seq.column.zip_with(seq.column.is_not_null(), named))
    reading, kinds = combined([ranges["domain"], ranges["category"], text], mapped)
    distinct = list(zip(*(column.to_list() for column in kinds), strict=True))
    return Meaning(
        tuple(_read(domain, kind, words or "") for domain, kind, words in distinct),
        tuple(words or "" for _, _, words in distinct),
        reading,
        seq,
        trace.numbers("ranges", "fwd_thread"),
    )


def _strip(ranges: pl.DataFrame) -> pl.DataFrame | None:
    """Return each distinct text without the parts that differ from call to call, and its seq.

    None if there is nothing to strip, for example because the reader has done so.
    """
    domains = distinct_values(ranges["domain"]).cast(pl.String)
    if all(own.is_own(domain) for domain in domains.to_list()):
        return None
    unique = distinct_values(ranges["text"]).to_frame()
    # piece by piece: of three million texts at once it takes 0.3 GB
    parts = [_stripped(unique["text"][part].cast(pl.String)) for part in pieces(len(unique))]
    if not any(differs for _, differs in parts):
        return None
    return pl.concat([unique, pl.concat(part for part, _ in parts)], how="horizontal")


def _stripped(column: pl.Series) -> tuple[pl.DataFrame, bool]:
    """Return the stripped texts and their seq, and whether anything was stripped."""
    text, seq = column, pl.Series([None], dtype=pl.Int64).new_from_index(0, len(column))
    for name in STRIPPING:
        result = _dialect(name).strip(text)
        text = result["text"]
        seq = seq.zip_with(seq.is_not_null(), result["seq"].cast(pl.Int64))
    differs = not text.equals(column) or seq.null_count() < len(seq)
    return pl.DataFrame(
        [text.cast(pl.Categorical).alias("stripped"), seq.alias("text_seq")]
    ), differs


@cache
def _dialect(name: str) -> ModuleType:
    return import_module(f"opscope.core.dialects.{name}")


def _read(domain: str | None, category: str | None, text: str) -> Reading:
    if own.is_own(domain):
        assert domain is not None
        return own.read(domain, category, text) or own.USER
    for name, domains in DIALECTS.items():
        if domains is None or (domain or "") in domains:
            reading: Reading | None = _dialect(name).read(domain or "", text)
            if reading is not None:
                directed = reading.role == "op" and category in DIRECTIONS
                return replace(reading, direction=category) if directed else reading
    return own.USER
