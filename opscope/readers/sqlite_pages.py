"""Decode the integer columns of large SQLite tables from the file's pages, in NumPy passes over many rows.

SQLite steps through a table row by row and column by column: 0.5 µs and more for each row. A row begins with
a header that gives the type of each of its columns. Rows of a trace have few different headers, and rows
with equal headers have their values at equal offsets, so each column of them is one gather: 0.1 µs a row.

The file format is https://www.sqlite.org/fileformat2.html, sections 1.3, 1.6 and 2.1. Unusual cases (rows
that continue on other pages, values that are not integers, a damaged page) raise Unusual, and the caller lets
SQLite read those rows. Nothing is read beyond a page, whatever the file says.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

#: Bytes of pages in one piece: 60 bytes a row make it half a million rows.
PIECE: Final = 32 << 20
#: Bytes of pages that are decoded at a time: the decoded values stay in the processor's cache. Decoding a
#: piece at once takes twice the time.
_BLOCK: Final = 3 << 20
_LEAF, _INTERIOR = 0x0D, 0x05
_LEAF_HEAD, _INTERIOR_HEAD = 8, 12
#: The header of the file, at the beginning of page 1.
_FILE_HEAD: Final = 100
#: Bytes of a value by its type in a row's header; types from 12 on are blobs and texts.
_WIDTH: Final = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
_REAL, _ZERO, _ONE, _FIRST_BLOB = 7, 8, 9, 12
#: A payload longer than a page's usable bytes less this continues on other pages.
_OVERFLOW: Final = 35
#: Longest header of a row, in bytes: its length is then one byte.
_LONGEST_HEADER: Final = 127
#: Columns of a row within so many bytes are gathered together.
_SPAN: Final = 120
#: Bytes after the last page that a gather may touch.
_MARGIN: Final = 512
#: Up to this many different headers, a scan of all rows for each takes less time than a sort.
_FEW: Final = 12
#: The largest number of different headers in a block.
_MOST_FORMS: Final = 4096
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)


class Unusual(Exception):
    """The pages hold data that only SQLite itself can read."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The leaf ``pages`` of a run of rows, and the rows' numbers: above ``after``, up to ``last`` (None: no
    bound)."""

    pages: Ints
    after: int | None
    last: int | None

    @property
    def where(self) -> str | None:
        """The SQL condition for the same rows; None for all."""
        bounds = []
        if self.after is not None:
            bounds.append(f"rowid > {self.after}")
        if self.last is not None:
            bounds.append(f"rowid <= {self.last}")
        return " AND ".join(bounds) or None


class Pages:
    """The pages of an SQLite file. Raises Unusual if its header is wrong."""

    def __init__(self, path: Path) -> None:
        if not hasattr(os, "preadv"):
            raise Unusual  # not on Windows
        self._file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        head = os.pread(self._file, _FILE_HEAD, 0)
        size = int.from_bytes(head[16:18], "big")
        self._size = 1 << 16 if size == 1 else size
        if len(head) < _FILE_HEAD or self._size < 512 or self._size & (self._size - 1):
            self.close()
            raise Unusual
        self._usable = self._size - head[20]
        self._count = os.fstat(self._file).st_size // self._size

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def __enter__(self) -> Pages:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pieces(self, root: int) -> list[Piece]:
        """Return the leaves of the table with this root page, in row order. Raises Unusual."""
        pages = np.array([root], np.int64)
        keys = np.empty(0, np.int64)  # the last row number of each page but the last
        seen, visited = np.zeros(self._count + 1, bool), 0
        while True:
            if pages.min() < 2 or pages.max() > self._count or seen[pages].any():
                raise Unusual
            seen[pages] = True
            if np.count_nonzero(seen) < (visited := visited + len(pages)):
                raise Unusual  # one page twice
            if self._read(pages[:1])[0] == _LEAF:
                break
            pages, keys = self._below(pages, keys)
        count = -(-len(pages) // max(1, PIECE // self._size))
        edges = [len(pages) * number // count for number in range(count + 1)]
        bounds = [None, *keys[[edge - 1 for edge in edges[1:-1]]].tolist(), None]
        return [
            Piece(pages[start:end], bounds[number], bounds[number + 1])
            for number, (start, end) in enumerate(pairwise(edges))
        ]

    def size_of(self, root: int) -> int:
        """Return the bytes of the leaves of the table with this root page. Raises Unusual."""
        return self._size * sum(len(piece.pages) for piece in self.pieces(root))

    def _below(self, pages: Ints, keys: Ints) -> tuple[Ints, Ints]:
        """Return the children of interior pages, and their keys."""
        flat = self._read(pages)
        base = np.arange(len(pages)) * self._size
        cells, counts = self._cells(flat, base, _INTERIOR, _INTERIOR_HEAD)
        ends = np.cumsum(counts) + np.arange(len(pages))  # the place of each page's rightmost child
        cell_count = len(cells) + len(pages)
        inner = np.ones(cell_count, bool)
        inner[ends] = False
        children = np.empty(cell_count, np.int64)
        children[inner] = _words(flat, ">u4")[cells]
        children[ends] = _words(flat, ">u4")[base + 8]
        children_found = np.empty(cell_count, np.int64)
        children_found[inner] = _varints(flat, cells + 4)
        children_found[ends[:-1]] = keys
        return children, children_found[:-1]

    def _buffer(self, pages: int) -> Bytes:
        """Return memory for so many pages and a margin."""
        return np.empty(pages * self._size + _MARGIN, np.uint8)

    def _read(self, pages: Ints, into: Bytes | None = None) -> Bytes:
        """Return the bytes of pages one after the other, and a margin; ``into``, if given, is the memory
        to read them into. Raises Unusual at the file's end."""
        size = self._size
        buffer = self._buffer(len(pages)) if into is None else into
        buffer = buffer[: len(pages) * size + _MARGIN]
        buffer[len(pages) * size :] = 0
        view = buffer.data
        breaks = np.flatnonzero(np.diff(pages) != 1) + 1
        for start, end in pairwise([0, *breaks.tolist(), len(pages)]):
            at, stop = start * size, end * size
            offset = (int(pages[start]) - 1) * size
            while at < stop:
                byte_count = os.preadv(self._file, [view[at:stop]], offset)
                if byte_count <= 0:
                    raise Unusual
                at, offset = at + byte_count, offset + byte_count
        return buffer

    def _cells(self, flat: Bytes, base: Ints, kind: int, head: int) -> tuple[Ints, Ints]:
        """Return where each cell of pages of one kind begins, and how many each page has."""
        if np.any(flat[base] != kind):
            raise Unusual
        counts = _words(flat, ">u2")[base + 3].astype(np.int64)
        most = int(counts.max())
        if head + 2 * most > self._usable:
            raise Unusual
        pointers: NDArray[Any] = np.ndarray(
            (len(base), most), ">u2", flat, offset=head, strides=(self._size, 2)
        )
        is_cell = np.arange(most) < counts[:, None]
        cells = (pointers + base[:, None])[is_cell]
        if np.any((cells - np.repeat(base, counts)) > self._usable - 4):
            raise Unusual
        return cells, counts

    def rows(
        self,
        piece: Piece,
        wanted: Sequence[int],
        seldom: Sequence[int],
        tell: Callable[[int], object] | None = None,
    ) -> tuple[list[pl.Series], NDArray[np.bool_]]:
        """Return the ``wanted`` columns (places in the table) of a piece's rows as Int64, and whether any of
        the columns ``seldom`` is not null. ``tell`` is called with the bytes of each block that is decoded.
        Raises Unusual."""
        step = max(1, _BLOCK // self._size)
        # new memory costs more than what is read
        memory = self._buffer(min(step, len(piece.pages)))
        blocks = []
        for start in range(0, len(piece.pages), step):
            pages = piece.pages[start : start + step]
            blocks.append(self._block(self._read(pages, memory), wanted, seldom))
            if tell is not None:
                tell(len(pages) * self._size)
        columns = zip(*(columns for columns, _ in blocks), strict=True)
        marked = np.concatenate([marked for _, marked in blocks])
        return [pl.concat(parts, rechunk=False) for parts in columns], marked

    def _block(
        self, flat: Bytes, wanted: Sequence[int], seldom: Sequence[int]
    ) -> tuple[list[pl.Series], NDArray[np.bool_]]:
        """``rows`` of the pages ``flat``."""
        base = np.arange((len(flat) - _MARGIN) // self._size) * self._size
        cells, counts = self._cells(flat, base, _LEAF, _LEAF_HEAD)
        payload = flat[cells].astype(np.int64)
        begin = cells + 1
        long = np.flatnonzero(payload >= 128)
        if len(long):
            low = flat[begin[long]]
            if np.any(low >= 128):
                raise Unusual  # 16 KiB and more
            payload[long] = (payload[long] - 128) * 128 + low
            begin[long] += 1
        begin += _varint_lengths(flat, begin)
        within = begin + payload - np.repeat(base, counts)
        if len(cells) and (
            int(payload.max()) > self._usable - _OVERFLOW or int(within.max()) > self._usable
        ):
            raise Unusual
        columns = _Columns(len(cells), wanted, seldom)
        for rows, header in _forms(flat, begin):
            if rows is None:
                columns.add(flat, begin, None, header, payload)
            else:
                columns.add(flat, begin[rows], rows, header, payload[rows])
        return columns.columns, columns.marked


class _Columns:
    """Columns of a block, filled one form of rows after the other."""

    def __init__(self, count: int, wanted: Sequence[int], seldom: Sequence[int]) -> None:
        self._wanted, self._seldom = wanted, seldom
        self._values = [np.empty(count, np.int64) for _ in wanted]
        self._nulls: list[NDArray[np.bool_] | None] = [None] * len(wanted)
        self.marked = np.zeros(count, bool)

    def add(
        self, flat: Bytes, begin: Ints, rows: Ints | None, header: bytes, payload: Ints
    ) -> None:
        """Add ``rows`` (None: all), which begin at ``begin`` and have this header."""
        kinds = _kinds(header)
        places = np.cumsum([len(header), *map(_width, kinds)]).tolist()
        if np.any(payload != places[-1]):
            raise Unusual
        last = max([*self._wanted, *self._seldom], default=-1)
        if last >= len(kinds):
            raise Unusual  # a column that was added later has its default
        here: Any = slice(None) if rows is None else rows
        if any(kinds[column_index] for column_index in self._seldom):
            self.marked[here] = True
        numbers = []
        for number, place in enumerate(self._wanted):
            kind = kinds[place]
            if kind == _REAL or kind > _ONE:
                raise Unusual
            if kind == 0:
                nulls = self._nulls[number]
                if nulls is None:
                    nulls = self._nulls[number] = np.zeros(len(self.marked), bool)
                nulls[here] = True
                self._values[number][here] = 0
            elif kind in (_ZERO, _ONE):
                self._values[number][here] = kind - _ZERO
            else:
                numbers.append((places[place], places[place + 1], number))
        for run in _runs(sorted(numbers)):
            # a value is the last bytes of the eight that end with it
            low, high = run[0][0] - 8, run[-1][1]
            held = _gather(flat, begin + low, high - low)
            for start, end, number in run:
                eight: NDArray[Any] = np.ndarray(
                    len(held), ">i8", held, offset=end - 8 - low, strides=(held.itemsize,)
                )
                values = eight.astype(np.int64)
                if end - start < 8:
                    values <<= np.int64(64 - 8 * (end - start))
                    values >>= np.int64(64 - 8 * (end - start))
                if rows is None:
                    self._values[number] = values
                else:
                    self._values[number][rows] = values

    @property
    def columns(self) -> list[pl.Series]:
        """The wanted columns."""
        return [
            pl.Series(values) if nulls is None else pl.Series(values).set(pl.Series(nulls), None)
            for values, nulls in zip(self._values, self._nulls, strict=True)
        ]


def _runs(numbers: list[tuple[int, int, int]]) -> Iterator[list[tuple[int, int, int]]]:
    """Yield runs of columns (begin, end, number) that lie close together."""
    run: list[tuple[int, int, int]] = []
    for number in numbers:
        if run and number[1] - run[0][0] > _SPAN:
            yield run
            run = []
        run.append(number)
    if run:
        yield run


def _gather(flat: Bytes, begin: Ints, size: int) -> NDArray[np.void]:
    """Return ``size`` bytes from each place ``begin``: one copy for each row."""
    windows: NDArray[np.void] = np.ndarray(
        (len(flat) - size + 1,), np.dtype((np.void, size)), flat, strides=(1,)
    )
    gathered: NDArray[np.void] = windows[begin]
    return gathered


def _words(flat: Bytes, kind: str) -> NDArray[Any]:
    """Return the integer that begins at each byte."""
    size = np.dtype(kind).itemsize
    words: NDArray[Any] = np.ndarray((len(flat) - size + 1,), kind, flat, strides=(1,))
    return words


def _varint_lengths(flat: Bytes, begin: Ints) -> Ints:
    """Return the length of the varint at each place: 1 to 9 bytes, the last one without its highest bit."""
    length = np.ones(len(begin), np.int64)
    more = flat[begin] >= 128
    for further in range(1, 9):
        if not more.any():
            break
        length += more
        more &= flat[begin + further] >= 128
    return length


def _varints(flat: Bytes, begin: Ints) -> Ints:
    """Return the value of the varint at each place. Raises Unusual for a value above 2^62."""
    length = _varint_lengths(flat, begin)
    if np.any(length == 9):
        raise Unusual
    value = np.zeros(len(begin), np.int64)
    for byte_index in range(int(length.max(initial=0))):
        is_inside = byte_index < length
        value[is_inside] = (value[is_inside] << 7) | (flat[begin[is_inside] + byte_index] & 127)
    return value


def _width(kind: int) -> int:
    return _WIDTH[kind] if kind <= _ONE else (kind - _FIRST_BLOB) // 2


@lru_cache(_MOST_FORMS)
def _kinds(header: bytes) -> tuple[int, ...]:
    """Return the types of the columns in a row's header."""
    kinds, value = [], 0
    for byte in header[1:]:
        value = value << 7 | byte & 127
        if byte < 128:
            kinds.append(value)
            value = 0
    if len(header) > 1 and header[-1] >= 128:
        raise Unusual
    if any(kind in (10, 11) for kind in kinds):
        raise Unusual
    return tuple(kinds)


def _forms(flat: Bytes, begin: Ints) -> Iterator[tuple[Ints | None, bytes]]:
    """Yield the rows of each different header (None: all rows), and the header."""
    if not len(begin):
        return
    sizes = flat[begin]
    low, high = int(sizes.min()), int(sizes.max())
    if not low or high > _LONGEST_HEADER:
        raise Unusual
    words = _gather(flat, begin, -(-high // 8) * 8).view(np.uint64).reshape(len(begin), -1)
    # bytes after the header do not count
    table = np.zeros((high + 1, words.shape[1] * 8), np.uint8)
    for size in range(low, high + 1):
        table[size, :size] = 255
    masks = table.view(np.uint64)
    words &= masks[low] if low == high else masks[sizes]
    columns = [np.ascontiguousarray(words[:, word_index]) for word_index in range(words.shape[1])]
    if all(bool((column == column[0]).all()) for column in columns):
        yield None, words[0].tobytes()[: int(sizes[0])]
        return
    left = np.ones(len(begin), bool)
    for _ in range(_FEW):
        first = int(left.argmax())
        same = columns[0] == words[first, 0]
        for index, column in enumerate(columns[1:], 1):
            same &= column == words[first, index]
        yield np.flatnonzero(same), words[first].tobytes()[: int(sizes[first])]
        left ^= same
        if not left.any():
            return
    yield from _many_forms(np.flatnonzero(left), words, sizes)


def _many_forms(
    chosen: Ints, words: NDArray[np.uint64], sizes: Bytes
) -> Iterator[tuple[Ints, bytes]]:
    """Yield the rows of each different header among the ``chosen`` ones, and the header."""
    forms = words[chosen]
    mixed = np.zeros(len(forms), np.uint64)
    for word_index in range(forms.shape[1]):
        mixed = (mixed ^ forms[:, word_index]) * _ODD
        mixed ^= mixed >> np.uint64(29)
    bucket = (mixed * _ODD >> np.uint64(48)).astype(np.uint16)
    order = np.argsort(bucket, kind="stable")  # of 16 bits: a radix sort
    edges = np.flatnonzero(np.diff(bucket[order])) + 1
    if len(edges) > _MOST_FORMS:
        raise Unusual
    for start, end in pairwise([0, *edges.tolist(), len(order)]):
        rows = order[start:end]
        while len(rows):  # headers that differ may share a bucket
            first = rows[0]
            same = (forms[rows] == forms[first]).all(axis=1)
            yield chosen[rows[same]], forms[first].tobytes()[: int(sizes[chosen[first]])]
            rows = rows[~same]
