"""Resolve the ids of an Nsight Systems export: string ids to texts, global ids to processes and threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from opscope.core.tables.columns import pairs

from .source import Source

#: A globalTid has the thread's id in its lowest bits and the process's id in as many bits above them.
TID_BITS: Final = 24
TID_MASK: Final = (1 << TID_BITS) - 1
#: Keys come in runs if there are at least this many per change.
_RUN: Final = 16
#: Most places in a table of keys, besides one for each row.
_TABLE: Final = 1 << 16


class Strings:
    """Texts by id (``StringIds``). Rows get only the 32-bit code of a text, not a copy."""

    def __init__(self, source: Source) -> None:
        frame = source.rows("StringIds", {"id": "int", "value": "text"})
        if frame.width < 2:
            frame = pl.DataFrame(schema={"id": pl.Int64, "value": pl.String})
        frame = frame.drop_nulls("id").unique("id", keep="first").sort("id")
        self._ids: npt.NDArray[np.int64] = frame["id"].to_numpy()
        self._values = frame["value"].fill_null("").cast(pl.Categorical)
        # in every export seen, ids count from 0 or 1 without a gap, so the row is id - first id
        self._dense = bool(len(self._ids) and self._ids[-1] - self._ids[0] == len(self._ids) - 1)

    def categorical(self, ids: pl.Series) -> pl.Series:
        """Return the text of each id as a Categorical; null if the id is null or unknown."""
        place = self._place(ids.fill_null(-1).to_numpy())
        index = pl.Series(place, dtype=pl.Int64)
        if (place < 0).any():
            index = index.set(pl.Series(place < 0), None)
        texts: pl.Series = self._values.gather(index).alias(ids.name)
        return texts

    def text(self, identity: int | None) -> str | None:
        """Return the text of one id, or None."""
        if identity is None:
            return None
        text_there: str | None = self.categorical(pl.Series([identity], dtype=pl.Int64))[0]
        return text_there

    def _place(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The row of each id; -1 if there is none."""
        count = len(self._ids)
        if self._dense:
            index: npt.NDArray[np.int64] = ids - self._ids[0]
            index[(index < 0) | (index >= count)] = -1
            return index
        if not count:
            return np.full(len(ids), -1, dtype=np.int64)
        index = np.searchsorted(self._ids, ids).astype(np.int64)
        index[index == count] = 0
        index[self._ids[index] != ids] = -1
        return index


class Codes:
    """Small numbers for the distinct values of a key; several threads may add values, in any order."""

    def __init__(self) -> None:
        self._codes: dict[int, int] = {}
        self._lock = Lock()

    @property
    def keys(self) -> list[int]:
        """The keys in the order of their codes."""
        with self._lock:
            return list(self._codes)

    def code(self, key: int) -> int:
        """Return the code of one key."""
        with self._lock:
            return self._codes.setdefault(key, len(self._codes))

    def of(self, keys: pl.Series) -> pl.Series:
        """Return the code of each key (UInt32); null for null."""
        low, high = keys.min(), keys.max()
        if low is None or (low == high and not keys.null_count()):
            # the usual case: a piece has one process and one domain
            code = None if low is None else self.code(int(low))  # type: ignore[arg-type]
            return constant(keys.name, code, pl.UInt32, len(keys))
        if not keys.null_count():
            codes_of_numbers = self._of_numbers(keys.to_numpy())
            if codes_of_numbers is not None:
                return pl.Series(keys.name, codes_of_numbers)
        distinct = keys.drop_nulls().unique().sort()
        numbers = [self.code(key) for key in distinct.to_list()]
        codes: pl.Series = keys.replace_strict(
            distinct, pl.Series(numbers, dtype=pl.UInt32), default=None, return_dtype=pl.UInt32
        )
        return codes

    def _of_numbers(self, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32] | None:
        """``of``, for keys that come in runs or lie close together; None for others.

        This takes 2 to 10 ns for a key; looking each key up takes 40.
        """
        changes = np.flatnonzero(keys[1:] != keys[:-1]) + 1
        if len(changes) * _RUN < len(keys):
            first = np.concatenate((np.zeros(1, np.int64), changes))
            return np.repeat(self._each(keys[first]), np.diff(np.append(first, len(keys))))
        high, low = keys >> 32, keys & ((1 << 32) - 1)
        if int(np.ptp(high) + 1) * int(np.ptp(low) + 1) > len(keys) + _TABLE:
            return None
        high_part, other, number = pairs(high, low)
        return self._each((high_part << 32) | other)[number]

    def _each(self, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
        """The codes of a few keys; new keys get their codes in the order of the keys."""
        codes = {key: self.code(key) for key in sorted(set(keys.tolist()))}
        return np.array([codes[key] for key in keys.tolist()], np.uint32)


class Threads:
    """The processes and threads of an export, from Nsight's globalTid and globalPid.

    ``processes`` has a provisional code for each globalPid >> 24 known so far.
    """

    def __init__(self) -> None:
        self.processes = Codes()
        self._codes = Codes()

    def split(self, global_tids: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return ``process`` (provisional codes, Int32) and ``thread`` (the operating system's id)."""
        codes = self._codes.of(global_tids.fill_null(0))
        keys = self._codes.keys
        numbers = pl.Series([self.processes.code(key >> TID_BITS) for key in keys], dtype=pl.Int32)
        tids = pl.Series([key & TID_MASK for key in keys], dtype=pl.Int64)
        return numbers.gather(codes).alias("process"), tids.gather(codes).alias("thread")

    def process(self, global_pids: pl.Series) -> pl.Series:
        """Return ``process`` of records that have no thread."""
        keys = global_pids.fill_null(0) // (1 << TID_BITS)
        codes: pl.Series = self.processes.of(keys).cast(pl.Int32).alias("process")
        return codes

    @property
    def known(self) -> list[tuple[int, int]]:
        """The threads known so far: globalPid >> 24 and the operating system's thread id."""
        return [(key >> TID_BITS, key & TID_MASK) for key in self._codes.keys]


def constant(name: str, value: object, dtype: Any, height: int) -> pl.Series:
    """A column with one value in all rows."""
    column: pl.Series = pl.Series(name, [value], dtype=dtype).new_from_index(0, height)
    return column


def named(codes: pl.Series, names: Sequence[str | None]) -> pl.Series:
    """Return the name of each code as a Categorical; null if the code or its name is null."""
    dictionary = pl.Series(list(names), dtype=pl.String).cast(pl.Categorical)
    column: pl.Series = dictionary.gather(codes).alias(codes.name)
    return column


def labels(numbers: pl.Series, names: Mapping[int, str], other: str) -> pl.Series:
    """Return the label of each small number as a Categorical; ``other`` (with ``{}``) for unknown ones."""
    codes = Codes()
    codes_of_labels = codes.of(numbers)
    return named(codes_of_labels, [names.get(key, other.format(key)) for key in codes.keys])
