"""Compute columns by code: once per distinct value, then spread to the rows with that value."""

from __future__ import annotations

import ctypes
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from .mapped import Mapped, full, let_go, zeros
from .pool import Pool

#: Rows handled at a time where all at once would take too much memory.
PIECE: Final = 250_000
_FEW: Final = 32
#: After this many pieces, the memory of mapped columns is released.
_KEPT: Final = 4
#: Threads that work on pieces or columns; each needs memory for its own.
_AHEAD: Final = 2
#: Rows of a piece that a thread works on. Each row takes 50 to 100 bytes meanwhile, and up to four pieces
#: exist at a time.
_PART: Final = 500_000
T = TypeVar("T")


def pieces(count: int, most: int = 0) -> Iterator[slice]:
    """Yield slices that split ``count`` rows, of ``most`` rows each (at most PIECE); a single empty slice
    for 0 rows."""
    most = min(most, PIECE) or PIECE
    for number, begin in enumerate(range(0, max(count, 1), most)):
        yield slice(begin, min(begin + most, count))
        # doing it for each piece would cost a twentieth of an export's time
        if count > PIECE and (number % _KEPT == _KEPT - 1 or begin + most >= count):
            let_go()


def stacked(parts: list[pl.DataFrame]) -> pl.DataFrame:
    """Return the rows of all ``parts`` and empty the list ``parts``; a column that a part lacks is null.

    Each column is in one piece: NumPy copies a column in several pieces at every read. Two columns are
    copied at a time, so that only these two are in memory twice.
    """
    schemas = {name: dtype for part in parts for name, dtype in part.schema.items()}
    alike = all(part.schema[name] == schemas[name] for part in parts for name in part.columns)
    if len(parts) < 2 or not alike:
        stacked_table = pl.concat(parts, how="diagonal_relaxed", rechunk=True)
        parts.clear()
        return stacked_table
    columns_of_parts = [{column.name: column for column in part.get_columns()} for part in parts]
    lengths = [len(part) for part in parts]
    parts.clear()

    def whole_column(name: str) -> pl.Series:
        nothing = pl.Series(name, [None], dtype=schemas[name])
        return pl.concat(
            [
                column if (column := part.pop(name, None)) is not None
                else nothing.new_from_index(0, count)
                for part, count in zip(columns_of_parts, lengths, strict=True)
            ],
            rechunk=True,
        )  # fmt: skip

    with Pool(_AHEAD) as pool:
        return pl.DataFrame(list(pool.map(whole_column, schemas)))


def ahead(work: Callable[[slice], T], count: int) -> Iterator[tuple[slice, T]]:
    """Yield each piece of ``count`` rows and the result of ``work`` for it, in order; threads work ahead of
    the caller.

    They run in parallel, because NumPy and Polars release the GIL. At most two pieces are being computed or
    wait for the caller.
    """
    parts = list(pieces(count, _PART))
    if len(parts) < 2:
        yield from ((part, work(part)) for part in parts)
        return
    with Pool(_AHEAD) as pool:
        waiting: deque[tuple[slice, Future[T]]] = deque()
        for part in parts:
            waiting.append((part, pool.submit(work, part)))
            if len(waiting) > _AHEAD:
                done, result = waiting.popleft()
                yield done, result.result()
                let_go()
        while waiting:
            done, result = waiting.popleft()
            yield done, result.result()
    hand_back()


def hand_back() -> None:
    """Return memory that threads have freed to the operating system: glibc keeps it in an arena per thread.

    It is 0.4 GiB after ten million kernels. Without glibc, this does nothing.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def grouped(keys: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each distinct key and its places, in order of keys. (Few distinct keys are found by scanning,
    many by sorting.)"""
    distinct = np.unique(keys)
    if len(distinct) <= _FEW:
        for key in distinct.tolist():
            yield key, np.flatnonzero(keys == key)
        return
    order = np.argsort(keys, kind="stable")
    edges = np.flatnonzero(np.diff(keys[order])) + 1
    yield from zip(distinct.tolist(), np.split(order, edges), strict=True)


def spread(name: str, texts: Sequence[str | None], codes: NDArray[Any]) -> pl.Series:
    """Return a Categorical column: for each code the text at that place; null where the code is -1."""
    values = pl.Series(name, texts, dtype=pl.String).cast(pl.Categorical)
    return gather(values, codes)


def gather(values: pl.Series, codes: NDArray[Any]) -> pl.Series:
    """Return for each code the value at that place; null where the code is negative."""
    column: pl.Series
    if not len(values):
        column = values.extend_constant(None, 1).new_from_index(0, len(codes))
        return column
    is_known = codes >= 0
    places = pl.Series(codes.astype(np.uint32))
    if not is_known.all():  # a negative code is not a place
        places = places.set(pl.Series(~is_known), None)
    column = values.gather(places)
    return column


#: From this many rows on, each distinct text is made once and the rows share it.
_MANY: Final = 10_000


def as_text(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with String in place of Categorical columns; 16 bytes a row, as texts are shared."""
    categorical = [column for column in frame.get_columns() if column.dtype == pl.Categorical]
    if len(frame) < _MANY:
        return frame.with_columns(column.cast(pl.String) for column in categorical)
    columns = []
    for column in categorical:
        codes, texts = compact(column)
        columns.append(pl.Series(column.name, texts, pl.String).gather(codes.astype(np.uint32)))
    return frame.with_columns(columns)


def sharing_nulls(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame in which all columns without any value share one null column per dtype, under their
    own names.

    Such a column of three million ranges takes 24 MB, and a trace of one process has five.
    """
    null_columns: dict[pl.DataType, pl.Series] = {}
    columns = []
    for column in frame.get_columns():
        if len(column) and column.null_count() == len(column):
            columns.append(null_columns.setdefault(column.dtype, column).alias(column.name))
        else:
            columns.append(column)
    return frame.with_columns(columns)


def matching(column: pl.Series, pattern: str) -> NDArray[np.bool_]:
    """Return which rows of a Categorical column match a regular expression; tests each distinct text once."""
    distinct = distinct_values(column).drop_nulls()
    wanted = distinct.filter(distinct.cast(pl.String).str.contains(pattern))
    matches: NDArray[np.bool_] = column.is_in(wanted.implode()).fill_null(False).to_numpy()
    return matches


def any_matches(column: pl.Series, pattern: str) -> bool:
    """Return whether any value of a Categorical column matches a regular expression."""
    return bool(distinct_values(column).cast(pl.String).str.contains(pattern).any())


def compact(
    column: pl.Series, values: pl.Series | None = None
) -> tuple[NDArray[np.int32], list[str | None]]:
    """Return a Categorical column as numbers 0, 1, 2 … and the text of each number (null has one too).

    ``values``: distinct values, if the caller has them already and wants them numbered; all of the column's
    values are among them.
    """
    distinct = distinct_values(column) if values is None else values
    return numbers_of(distinct)(column), distinct.cast(pl.String).to_list()


def numbers_of(distinct: pl.Series) -> Callable[[pl.Series], NDArray[np.int32]]:
    """Return a function that maps a Categorical column, or a part of it, to the places of its values in
    ``distinct``, which has each value once."""
    physical = distinct.to_physical()
    top: Any = physical.max()
    null_at = len(distinct)  # unused if the distinct values include no null
    if distinct.null_count():
        null_at = int(distinct.is_null().arg_max() or 0)
    table = np.zeros(1 if top is None else int(top) + 1, np.int32)
    held = physical.drop_nulls().to_numpy()
    table[held] = np.flatnonzero(distinct.is_not_null().to_numpy())

    def numbers(column: pl.Series) -> NDArray[np.int32]:
        codes = column.to_physical()
        missing = codes.null_count()
        numbers_of_rows: NDArray[np.int32] = table.take(
            (codes.fill_null(0) if missing else codes).to_numpy()
        )
        if missing:
            numbers_of_rows[codes.is_null().to_numpy()] = null_at
        return numbers_of_rows

    return numbers


def combined(
    columns: Sequence[pl.Series], mapped: Mapped | None = None
) -> tuple[NDArray[np.int32], list[pl.Series]]:
    """Return for each row of Categorical columns the number of its combination of values, and per column
    the value of each combination. ``mapped``: where the numbers are kept, if not in memory."""
    count = len(columns[0])
    values = [distinct_values(column) for column in columns]
    numbers = [numbers_of(value) for value in values]
    size = math.prod(map(len, values))

    def keys(part: slice) -> NDArray[np.int64]:
        key = np.zeros(part.stop - part.start, np.int64)
        for column, number, distinct in zip(columns, numbers, values, strict=True):
            key *= len(distinct)
            key += number(column[part])
        return key

    distinct, number_of = _numbering((keys(part) for part in pieces(count)), size, count)
    number = zeros(mapped, count, np.int32)
    for part in pieces(count):
        number[part] = number_of(keys(part))
    columns_combined: list[pl.Series] = []
    for column, distinct_texts in zip(reversed(columns), reversed(values), strict=True):
        distinct, index = np.divmod(distinct, max(len(distinct_texts), 1))
        columns_combined.append(distinct_texts.cast(pl.String).gather(index).alias(column.name))
    return number, columns_combined[::-1]


def _numbering(
    parts: Iterable[NDArray[np.int64]], size: int, count: int
) -> tuple[NDArray[np.int64], Callable[[NDArray[np.int64]], NDArray[np.int32]]]:
    """Return the distinct keys of all parts (``count``, all less than ``size``) in order, and a function
    that maps keys to their places."""
    if size > 4 * count + (1 << 20):
        distinct_parts = [np.unique(part) for part in parts]
        distinct = (
            np.unique(np.concatenate(distinct_parts)) if distinct_parts else np.empty(0, np.int64)
        )
        return distinct, lambda keys: np.searchsorted(distinct, keys).astype(np.int32)
    seen = np.zeros(size, bool)
    for part in parts:
        seen[part] = True
    distinct = np.flatnonzero(seen)
    places = np.zeros(size, np.int32)
    places[distinct] = np.arange(len(distinct), dtype=np.int32)
    return distinct, lambda keys: places[keys]


def pairs(
    left: NDArray[Any], right: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """Return the distinct pairs in order (their left and right values), and the number of each row's pair."""
    if not len(left):
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32)
    low, least = int(left.min()), int(right.min())
    tall, wide = int(left.max()) - low + 1, int(right.max()) - least + 1
    if tall * wide >= 1 << 62:  # the numbers are far apart: pair their places, which are few
        unique_pairs = [np.unique(column, return_inverse=True) for column in (left, right)]
        values, indices = zip(*unique_pairs, strict=True)
        codes, other, number = pairs(*(left_code.reshape(-1) for left_code in indices))
        return values[0][codes].astype(np.int64), values[1][other].astype(np.int64), number
    # with a single value on one side (most traces have one process and one device), the other side is the
    # key; each step of the product would take 8 bytes a row
    key = (right if tall == 1 else left).astype(np.int64)
    key -= least if tall == 1 else low
    if tall > 1 and wide > 1:
        key *= wide
        key += right
        key -= least
    distinct, number = _number(key, tall * wide)
    codes, other = np.divmod(distinct, wide)
    return codes + low, other + least, number


def combinations(*columns: NDArray[Any]) -> tuple[int, NDArray[np.int32]]:
    """Return how many distinct combinations the rows of integer columns have, and the number of each row's.

    The numbers are in the order of the combinations. As many columns as fit into 62 bits are packed into one
    number, because each step of ``pairs`` sorts all rows.
    """
    key: NDArray[np.int64] | None = None
    size = 1
    for column in columns:
        if not len(column):
            return 0, np.empty(0, np.int32)
        least = int(column.min())
        wide = int(column.max()) - least + 1
        if key is not None and size * wide >= 1 << 62:
            distinct, number = _number(key, size)
            key, size = number.astype(np.int64), len(distinct)
        if size * wide >= 1 << 62:
            distinct, inverse = np.unique(column, return_inverse=True)
            column, least, wide = inverse.reshape(-1), 0, len(distinct)
        shifted = column.astype(np.int64) - least
        key = shifted if key is None else key * wide + shifted
        size *= wide
    if key is None:
        raise ValueError("no columns to combine")
    distinct, number = _number(key, size)
    return len(distinct), number


def _number(key: NDArray[Any], size: int) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Return the distinct keys, all less than ``size``, in order, and the place of each row's key in them."""
    if size > 4 * len(key) + (1 << 20):
        bits = len(key).bit_length()
        if size >= 1 << (63 - bits):
            distinct, inverse = np.unique(key, return_inverse=True)
            return distinct, inverse.reshape(-1).astype(np.int32)
        # key and row packed into one number: 0.07 s for 1 M rows, where ``np.unique`` takes 0.3 s
        packed = key.astype(np.int64) << bits
        packed |= np.arange(len(key))
        packed.sort()
        row = packed & ((1 << bits) - 1)
        packed >>= bits
        first = np.ones(len(key), bool)
        np.not_equal(packed[1:], packed[:-1], out=first[1:])
        number = np.empty(len(key), np.int32)
        number[row] = np.cumsum(first, dtype=np.int32) - 1
        return packed[first].astype(key.dtype), number
    seen = np.zeros(size, bool)  # a table is several times faster than a sort or a join
    for part in pieces(len(key)):
        seen[key[part]] = True
    distinct = np.flatnonzero(seen)
    places = np.zeros(size, np.int32)
    places[distinct] = np.arange(len(distinct), dtype=np.int32)
    number = np.empty(len(key), np.int32)
    for part in pieces(len(key)):
        number[part] = places[key[part]]
    return distinct, number


def distinct_values(column: pl.Series) -> pl.Series:
    """Return the distinct values of a Categorical column, with null, without sorting it as ``unique``
    does. Also takes String columns, as in merged profiles."""
    if column.dtype == pl.String:
        return column.unique(maintain_order=True)
    top: Any = column.to_physical().max()
    if top is None:
        return column[:1]
    index = np.full(int(top) + 2, -1, np.int64)  # the last is for null
    for part in pieces(len(column)):
        codes = column[part].to_physical().fill_null(int(top) + 1).to_numpy()
        index[codes] = np.arange(part.start, part.start + len(codes))
    return column.gather(np.sort(index[index >= 0]))


def known(column: pl.Series, otherwise: int) -> pl.Series:
    """Return the column with nulls replaced by ``otherwise``; unchanged if it has no nulls."""
    return column.fill_null(otherwise) if column.null_count() else column


def known_sum(name: str) -> pl.Expr:
    """Return the sum of a group's column: null (not 0) if no row of the group has a value."""
    column = pl.col(name)
    return pl.when(column.is_not_null().any()).then(column.sum()).alias(name)


def cost_sum(name: str, executed: pl.Expr | None = None) -> pl.Expr:
    """Return the sum of a group's costs as ``known_sum`` does, but null if it is 0 and the cost of a row
    is unknown, because 0 would mean that nothing was computed. ``executed``: the rows whose cost counts."""
    column = pl.col(name)
    unknown = column.is_null() if executed is None else column.is_null() & executed
    is_told = column.is_not_null().any() & ((column.sum() != 0) | ~unknown.any())
    return pl.when(is_told).then(column.sum()).alias(name)


def at(values: NDArray[Any], places: NDArray[Any], otherwise: int = -1) -> NDArray[Any]:
    """Return for each place the value there; ``otherwise`` where the place is negative."""
    is_known = places >= 0
    if is_known.all():
        taken: NDArray[Any] = values[places]
        return taken
    values_at = np.full(len(places), otherwise, values.dtype)
    values_at[is_known] = values[places[is_known]]
    return values_at


def least(column: pl.Series) -> int | None:
    """Return the lowest number of a column, None if it is empty; a long column is read piece by piece."""
    minima = [column[part].min() for part in pieces(len(column))]
    return min((int(minimum) for minimum in minima if minimum is not None), default=None)  # type: ignore[arg-type]


def most(column: pl.Series) -> int | None:
    """Return the highest number of a column, None if it is empty; a long column is read piece by piece."""
    maxima = [column[part].max() for part in pieces(len(column))]
    return max((int(maximum) for maximum in maxima if maximum is not None), default=None)  # type: ignore[arg-type]


def gathered(
    column: pl.Series, rows: NDArray[Any], mapped: Mapped | None = None, otherwise: int = -1
) -> NDArray[np.int64]:
    """Return the values of an integer column in ``rows``, with ``otherwise`` for nulls, piece by piece."""
    values = zeros(mapped, len(rows), np.int64)
    for part in pieces(len(rows)):
        values[part] = column.gather(rows[part]).fill_null(otherwise).to_numpy()
    return values


class LookUp:
    """Finds rows by id; of several rows with one id, the last. A negative or unknown id has no row."""

    def __init__(
        self,
        ids: NDArray[np.int64],
        rows: NDArray[np.signedinteger[Any]],
        mapped: Mapped | None = None,
    ) -> None:
        """``mapped``: where a table of dense ids is kept, if not in memory."""
        extents = [(ids[part].min(), ids[part].max()) for part in pieces(len(ids))]
        self._low = int(min(low for low, _ in extents))
        high = int(max(most for _, most in extents))
        self._table: NDArray[np.int32] | None = None
        if high - self._low < 8 * len(ids) + 1024:  # ids are mostly dense: use a table, not a sort
            self._table = full(mapped, high - self._low + 1, -1, np.int32)
            for part in pieces(len(ids)):
                self._table[ids[part] - self._low] = rows[part]
        else:
            order = np.argsort(ids, kind="stable")
            self._ids, self._rows = ids[order], rows[order]

    def __call__(self, wanted: NDArray[np.int64]) -> NDArray[Any]:
        """Return for each id in ``wanted`` its row, or -1."""
        if self._table is not None:
            inside = (wanted >= max(self._low, 0)) & (wanted < self._low + len(self._table))
            return np.where(inside, self._table[np.where(inside, wanted - self._low, 0)], -1)
        index = np.searchsorted(self._ids, wanted, side="right") - 1
        same = (at(self._ids, index) == wanted) & (wanted >= 0)
        return at(self._rows, np.where(same, index, -1))


# ------------------------------------------------------------ what Polars refuses, because it is not UTF-8


def to_read(file: Path) -> Any:
    """Return the path, or the opened file if the path is not UTF-8. Raises OSError."""
    return file if _is_utf8(file) else _open(file, "rb")


def to_write(file: Path) -> Any:
    """Return the path, or the new file, opened, if the path is not UTF-8. Raises OSError."""
    return file if _is_utf8(file) else _open(file, "wb")


def utf8(text: str) -> str:
    """Return a text with "?" for each byte of a file name, or half of a character, that is not valid
    UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _is_utf8(file: Path) -> bool:
    try:
        os.fspath(file).encode()
    except UnicodeEncodeError:
        return False
    return True


def _open(file: Path, mode: str) -> IO[bytes]:
    # Polars duplicates the descriptor; this one is closed with the object
    return file.open(mode)


def extent(name: str) -> pl.Expr:
    """The product of the three sizes in a text ``x,y,z``; null if the text has another form or contains a
    zero."""
    size = pl.col(name).cast(pl.String).str.extract_groups(r"^(\d{1,10}),(\d{1,10}),(\d{1,10})$")
    x, y, z = (size.struct.field(str(n)).cast(pl.Float64) for n in (1, 2, 3))
    product = x * y * z
    # CUDA's largest grid has 2^31 x 2^16 x 2^16 blocks: anything larger is not a grid
    return pl.when((product > 0) & (product < 2.0**53)).then(product.cast(pl.Int64, strict=False))


def extents(texts: Sequence[str | None]) -> pl.Series:
    """Return the product of the sizes in each text ``x,y,z``, as ``extent`` does."""
    return pl.DataFrame({"": texts}, schema={"": pl.String}).select(extent("")).to_series()
