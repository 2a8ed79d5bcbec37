"""Keep long columns in mapped files: they take memory only while they are read, a part at a time.

A page of such a file stays in the memory of the process until ``let_go``; later reads fetch it from the
system's cache or the file. Code that goes through many rows calls it between parts, as ``columns.pieces``
does.
"""

from __future__ import annotations

import logging
import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

#: Whether the memory of a mapped file can be given back. On Windows it cannot, and the folder cannot be
#: removed meanwhile.
POSSIBLE: Final = hasattr(mmap, "MADV_DONTNEED")
#: Columns with fewer bytes stay in memory.
LEAST: Final = 4 << 20
#: Bytes that are written at a time.
_AT_ONCE: Final = 16 << 20
_Kind = TypeVar("_Kind", bound=np.generic)
#: The maps still in use, with their addresses.
_maps: Final[weakref.WeakKeyDictionary[mmap.mmap, int]] = weakref.WeakKeyDictionary()
_changing: Final = threading.Lock()
_log: Final = logging.getLogger(__name__)


def let_go() -> None:
    """Give back the memory of mapped columns that were read. Their values stay available and are read
    again."""
    if not _maps or not POSSIBLE:
        return
    with _changing:
        maps = list(_maps)
    for region in maps:
        region.madvise(mmap.MADV_DONTNEED)


def is_mapped(values: NDArray[Any]) -> bool:
    """Return whether an array belongs to a ``Mapped``, or is a view of such an array."""
    with _changing:
        spans = [(address, len(region)) for region, address in _maps.items()]
    return any(address <= values.ctypes.data < address + size for address, size in spans)


def zeros(mapped: Mapped | None, count: int, dtype: Any) -> NDArray[Any]:
    """Return a writable array of zeros, in a mapped file or, without ``mapped``, in memory."""
    return np.zeros(count, dtype) if mapped is None else mapped.zeros(count, dtype)


def full(mapped: Mapped | None, count: int, value: Any, dtype: Any) -> NDArray[Any]:
    """Return a writable array of equal numbers, in a mapped file or, without ``mapped``, in memory."""
    values = zeros(mapped, count, dtype)
    step = max(1, _AT_ONCE // values.itemsize)
    for begin in range(0, count, step):
        values[begin : begin + step] = value
        if mapped is not None:
            let_go()
    return values


class _HasNulls(Exception):
    """A column cannot be stored in a file."""


class Mapped:
    """Puts columns into files in a folder. The files have no names, so each disappears with its column."""

    def __init__(self, folder: Path, needed: bool = True) -> None:
        """``needed``: a file that cannot be written is an error; if not, its column stays in memory."""
        self._folder, self._needed = folder, needed

    def array(self, values: NDArray[_Kind]) -> NDArray[_Kind]:
        """Return an equal, read-only array; a short one is returned unchanged. Raises OSError."""
        if values.nbytes < LEAST or is_mapped(values):
            return values
        mapped_values: NDArray[_Kind] | None = self._mapped([values], values.dtype)
        return values if mapped_values is None else mapped_values

    def zeros(self, count: int, dtype: Any) -> NDArray[Any]:
        """Return an array of zeros that can be written; a short one is in memory. Raises OSError."""
        dtype = np.dtype(dtype)
        size = count * dtype.itemsize
        if size < LEAST:
            return np.zeros(count, dtype)
        values = self._if_room(lambda: self._blank(size, dtype))
        return np.zeros(count, dtype) if values is None else values

    def _blank(self, size: int, dtype: Any) -> NDArray[Any]:
        with tempfile.TemporaryFile(dir=self._folder) as file:
            # on a full disk this fails cleanly, where writing to the map of a sparse file would crash the
            # process
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                for begin in range(0, size, _AT_ONCE):
                    file.write(bytes(min(_AT_ONCE, size - begin)))
                file.flush()
            return self._of_file(mmap.mmap(file.fileno(), size), dtype)

    def column(self, values: pl.Series) -> pl.Series:
        """Return an equal column; unchanged if it is short, has nulls, or is neither numbers nor
        categories."""
        size = values.dtype.is_numeric() and values.estimated_size()
        if values.dtype == pl.Categorical:
            size = 4 * len(values)
        if size < LEAST or values.null_count():
            return values
        numbers = values.to_physical()
        if numbers.n_chunks() == 1 and is_mapped(numbers.to_numpy()):
            return values
        chunks = [chunk.to_numpy() for chunk in numbers.get_chunks()]
        mapped = self._mapped(chunks, chunks[0].dtype)
        if mapped is None:
            return values
        column = pl.Series(values.name, mapped)  # without a copy
        return column.cat.to(pl.Categorical) if values.dtype == pl.Categorical else column

    def pieces(
        self, name: str, dtype: Any, parts: Iterable[pl.Series], count: int
    ) -> pl.Series | None:
        """Return the column of ``count`` rows made of ``parts``; None if it cannot be in a file: if it is
        short, has nulls, or is neither numbers nor categories."""
        categories = dtype == pl.Categorical
        physical = pl.Series(name, [], dtype).to_physical().to_numpy().dtype
        if not (categories or dtype.is_numeric()) or count * physical.itemsize < LEAST:
            return None
        categories_alive: list[
            pl.Series
        ] = []  # keep the categories alive as long as a column of them

        def arrays() -> Iterator[NDArray[Any]]:
            for part in parts:
                if part.null_count():
                    raise _HasNulls
                categories_alive.append(part[:1])
                yield part.to_physical().to_numpy()

        try:
            mapped = self._mapped(arrays(), physical)
        except _HasNulls:
            return None
        if mapped is None:
            return None
        column = pl.Series(name, mapped)
        return column.cat.to(pl.Categorical) if categories else column

    def _mapped(self, parts: Iterable[NDArray[Any]], dtype: Any) -> NDArray[Any] | None:
        """Return the parts as one array in a file; None if there is no room and the file is not required."""
        return self._if_room(lambda: self._written(parts, dtype))

    def _if_room(self, make: Callable[[], NDArray[Any]]) -> NDArray[Any] | None:
        try:
            return make()
        except OSError as error:
            if self._needed:
                raise
            _log.debug("a column stays in memory: %s: %s", self._folder, error)
            return None

    def _written(self, parts: Iterable[NDArray[Any]], dtype: Any) -> NDArray[Any]:
        with tempfile.TemporaryFile(dir=self._folder) as file:
            for part in parts:
                step = max(1, _AT_ONCE // part.itemsize)
                for begin in range(0, len(part), step):
                    file.write(np.ascontiguousarray(part[begin : begin + step]).data)
            file.flush()
            return self._of_file(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype)

    @staticmethod
    def _of_file(region: mmap.mmap, dtype: Any) -> NDArray[Any]:
        values = np.frombuffer(region, dtype)
        with _changing:
            _maps[region] = values.ctypes.data
        let_go()
        return values
