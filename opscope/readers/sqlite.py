"""Read the tables of an SQLite file as typed Polars columns, without writing to it.

Rows come through the ADBC driver, which fills Arrow columns in C (0.6 µs for a row of 17 columns; ``sqlite3``
with NumPy takes 1.9 and Polars' own reader 3.6). Polars uses the Arrow columns without a copy. The driver
derives a column's type from its first values, so columns that may begin with nulls are selected by an
expression that is never null. Texts are selected as bytes: SQLite does not guarantee UTF-8 and Polars trusts
Arrow, but Polars' cast from bytes to text checks (2 ms for 500,000 texts). Large tables are read in pieces
on all cores, each piece on its own connection. A converter makes each piece small before the next is read.
Integers of large tables do not come through SQLite but from the file's pages (``sqlite_pages``), which takes
a fifth of the time; rows that are not as usual there come through SQLite.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import quote

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core import progress
from opscope.core.tables.columns import hand_back
from opscope.core.tables.pool import Pool

from .errors import BadInput
from .sqlite_pages import Pages, Piece, Unusual

#: The type of a column: "int" (nulls allowed), "text" ('' is null), "real" or "blob" (rare columns).
Kind = Literal["int", "text", "real", "blob"]
#: A column to read: its type, or the three columns of a CUDA extent (x, y, z) packed into one
#: integer, x << 32 | y << 16 | z, because reading a column costs more than computing one.
Column: TypeAlias = "Kind | tuple[str, str, str]"
T = TypeVar("T")
_C = TypeVar("_C", bound="Column")

MAGIC: Final = b"SQLite format 3\0"
#: Rows in one piece: 20 columns of it take 80 MB while it is converted.
PIECE: Final = 500_000
#: Rows in one Arrow batch. A batch is smaller than a piece, so that joining the batches makes copies: without
#: a copy, one column that is kept would keep all columns of its batch in memory.
_BATCH: Final = 65_536
_DTYPES: Final[Mapping[str, Any]] = {
    "int": pl.Int64,
    "text": pl.String,
    "real": pl.Float64,
    "blob": pl.Binary,
}
#: In characters; real exports have no defaults.
_LONGEST_DEFAULT: Final = 1000
#: CUDA's limits of a grid: 2^31 - 1, 65,535 and 65,535.
_EXTENT_X: Final = (1 << 31) - 1
_EXTENT_YZ: Final = (1 << 16) - 1
#: Name of the column, in a read of rare columns, with the row's offset in the piece.
ROW: Final = "row"


class Database:
    """An SQLite file, opened read-only and immutable: without a lock, a journal or any file beside it.

    ``tables`` maps each table to its columns in order. Views are left out, because a view in an untrusted
    file may compute forever. Raises BadInput if the file is missing, is not an SQLite database or is
    damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        check_magic(self.path)
        self._uri = f"file:{quote(os.fsencode(self.path.resolve()))}?mode=ro&immutable=1"
        try:
            connection = sqlite3.connect(self._uri, uri=True)
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            try:
                names = connection.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table'"
                ).fetchall()
                columns = {
                    name: connection.execute(f"PRAGMA table_info({_quote(name)})").fetchall()
                    for (name,) in names
                }
            finally:
                connection.close()
        # SQLite's message quotes the damaged schema, which Python may be unable to decode
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise BadInput(self.path, f"the SQLite database cannot be read ({error})") from error
        for name, rows in columns.items():
            # rows written before a column was added have its default, which the file stores only once
            if any(len(str(row[4])) > _LONGEST_DEFAULT for row in rows):
                raise BadInput(self.path, f"table {name} has a column with an oversized default")
        self.tables: dict[str, tuple[str, ...]] = {
            name: tuple(row[1] for row in rows) for name, rows in columns.items()
        }
        self._connection: Any = None
        #: Number of values of the wrong type by (table, column, SQL of the rows that were selected).
        self._faults: dict[tuple[str, str, str], int] = {}
        #: Bytes of each table that was read, and how many were reported, if someone listens to progress.
        self._weights: dict[str, tuple[int, int]] = {}
        self._counting = threading.Lock()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a later read opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table exists and has all the columns."""
        return table in self.tables and set(columns) <= set(self.tables[table])

    def rows(
        self, table: str, columns: Mapping[str, Kind], where: str | None = None
    ) -> pl.DataFrame:
        """Return the table's rows in file order, without the columns that the table lacks.

        ``where`` is an SQL condition written by the caller, never from the file.
        """
        wanted = self._present(table, columns)
        if not wanted:
            return pl.DataFrame()
        if self._connection is None:
            self._connection = _connect(self._uri)
        selected = self._select(self._connection, table, wanted, where)
        self._told(table, 1)
        return selected

    def scan(
        self,
        table: str,
        columns: Mapping[str, Column],
        convert: Callable[[pl.DataFrame, pl.DataFrame | None], T],
        rare: Mapping[str, Kind] | None = None,
    ) -> list[T]:
        """Return ``convert`` of each piece of a large table, in row order.

        ``convert`` gets the piece's ``columns``. If one of the ``rare`` columns is not null in the piece,
        it also gets a second frame with those rows: the ``rare`` columns and ``row``, the row's offset in
        the piece. So most rows do not pay for the rare columns. It is called on several threads.
        """
        wanted = self._present(table, columns)
        seldom = self._present(table, rare or {})
        if not wanted:
            return []
        with ExitStack() as opened:
            decoder = self._decoder(table, wanted, seldom, opened)
            pieces = self._pieces(table) if decoder is None else decoder.pieces
            workers = min(len(pieces), os.cpu_count() or 1, 8)

            def one(piece: Piece | str | None) -> T:
                with _Connecting(self._uri) as connecting:
                    if decoder is not None and isinstance(piece, Piece):
                        try:
                            frames = self._decode(connecting, table, decoder, piece)
                        except Unusual:
                            piece = piece.where
                        else:
                            return convert(*frames)
                    assert not isinstance(piece, Piece)
                    return convert(*self._piece(connecting(), table, wanted, seldom, piece))

            items = []

            def take(made: Iterable[T]) -> None:
                for item in made:
                    items.append(item)
                    self._told(table, len(items) / len(pieces))

            if workers < 2:
                take(map(one, pieces))
                return items
            with Pool(workers) as pool:
                take(pool.map(one, pieces))
        hand_back()
        return items

    def _decoder(
        self,
        table: str,
        wanted: Mapping[str, Column],
        seldom: Mapping[str, Kind],
        opened: ExitStack,
    ) -> _Decoder | None:
        """Return the decoder of the table's integers from the file's pages; None if only SQLite can read
        them."""
        name = "'" + table.replace("'", "''") + "'"
        sql = (
            f"SELECT (SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = {name}) AS root, "
            f"(SELECT count(*) FROM pragma_table_xinfo({name}) WHERE hidden <> 0 OR pk > 0) AS odd"
        )
        try:
            root, odd = self._execute(sql).row(0)
            # computed columns are not in the rows, nor is a key that is the row's number
            if odd or not isinstance(root, int):
                return None
            pages = opened.enter_context(Pages(self.path))
            tell = self._teller(table)
            return _Decoder(pages, pages.pieces(root), self.tables[table], wanted, seldom, tell)
        except (BadInput, Unusual, OSError):
            return None

    def _decode(
        self, connecting: _Connecting, table: str, decoder: _Decoder, piece: Piece
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """``_piece`` with the integers from the file's pages. Raises Unusual."""
        columns, marked = decoder.integers(piece)
        others = {name: kind for name, kind in decoder.wanted.items() if name not in columns}
        if others:
            selected = self._select(connecting(), table, others, piece.where)
            if len(selected) != len(marked):
                raise Unusual
            columns |= {name: selected[name] for name in others}
        frame = pl.DataFrame([columns[name] for name in decoder.wanted])
        if not marked.any():
            return frame, None
        flag = _any_known(decoder.seldom)
        condition = flag if piece.where is None else f"{piece.where} AND {flag}"
        rare = self._select(connecting(), table, decoder.seldom, condition)
        rows = pl.Series(ROW, np.flatnonzero(marked).astype(np.uint32))
        if len(rare) != len(rows):
            raise Unusual
        return frame, rare.insert_column(0, rows)

    def _piece(
        self,
        connection: Any,
        table: str,
        wanted: Mapping[str, Column],
        seldom: Mapping[str, Kind],
        where: str | None,
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        flag = _any_known(seldom) if seldom else ""
        frame = self._select(connection, table, wanted, where, flag or None)
        if not flag:
            return frame, None
        marked = frame["_flag"].cast(pl.Int64).fill_null(0) > 0
        frame = frame.drop("_flag")
        if not marked.any():
            return frame, None
        condition = flag if where is None else f"{where} AND {flag}"
        rare = self._select(connection, table, seldom, condition)
        return frame, rare.insert_column(0, marked.arg_true().alias(ROW))

    def mostly(self, table: str, column: str) -> bool:
        """Whether, in a sample from the table's middle, at least one row in ten has a value in the column."""
        if not self.has(table, column):
            return False
        try:
            sample = self._execute(
                f"SELECT count(*) AS rows, count({_quote(column)}) AS known FROM (SELECT "
                f"{_quote(column)} FROM {_quote(table)} WHERE rowid >= (SELECT (low + high) / 2 "
                f"FROM ({_span(table)})) LIMIT 1000)"
            )
        except BadInput:
            return True  # the table has no row numbers, so nothing is known
        rows, valued = sample.row(0)
        return bool(valued * 10 >= rows)

    def _told(self, table: str, share: float) -> None:
        """Report that this share of the table is read."""
        if (stage := progress.reads()) is None:
            return
        with self._counting:
            if table not in self._weights:
                self._weights[table] = self._weight(table), 0
            weight, before = self._weights[table]
            now = max(before, int(weight * share))
            self._weights[table] = weight, now
        stage.read(os.fspath(self.path), None, now - before)

    def _teller(self, table: str) -> Callable[[int], None] | None:
        """Return a function that reports decoded bytes of the table from any thread: it reports only half
        of the bytes, because the other half of the work follows. None if nobody listens."""
        if (stage := progress.reads()) is None:
            return None
        self._told(table, 0)

        def tell(count: int) -> None:
            with self._counting:
                weight, before = self._weights[table]
                now = min(before + count // 2, weight)
                self._weights[table] = weight, now
            stage.read(os.fspath(self.path), None, now - before)

        return tell

    def _weight(self, table: str) -> int:
        """Return the bytes of the pages that hold the table's rows; 0 if their layout is unusual."""
        name = "'" + table.replace("'", "''") + "'"
        sql = f"SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = {name}"
        try:
            root = self._execute(sql).item()
            with Pages(self.path) as pages:
                return pages.size_of(root)
        except (BadInput, Unusual, OSError, ValueError, TypeError):
            return 0

    def _present(self, table: str, columns: Mapping[str, _C]) -> dict[str, _C]:
        has = self.tables.get(table, ())
        return {
            name: kind
            for name, kind in columns.items()
            if (set(kind) <= set(has) if isinstance(kind, tuple) else name in has)
        }

    def _pieces(self, table: str) -> Sequence[str | None]:
        """Conditions that split the table by row number; [None] if the table has no row numbers."""
        try:
            span = self._execute(_span(table))
        except BadInput:
            return [None]  # a table WITHOUT ROWID
        low, high = span.row(0)
        if not isinstance(low, int) or not isinstance(high, int):
            return [None]
        # Row numbers may be far apart in a malicious file; a row has at least 8 bytes.
        count = min(high - low + 1, self.path.stat().st_size // 8 + 1)
        parts = max(1, -(-count // PIECE))
        edges = [low + (high - low + 1) * number // parts for number in range(parts + 1)]
        return [f"rowid BETWEEN {start} AND {end - 1}" for start, end in pairwise(edges)]

    def _execute(self, sql: str) -> pl.DataFrame:
        if self._connection is None:
            self._connection = _connect(self._uri)
        return self._fetch(self._connection, sql, "a query")

    def _select(
        self,
        connection: Any,
        table: str,
        columns: Mapping[str, Column],
        where: str | None,
        flag: str | None = None,
    ) -> pl.DataFrame:
        fields = [_form(name, kind) for name, kind in columns.items()]
        if flag is not None:
            fields.append(f"{flag} AS _flag")
        rest = f" FROM {_quote(table)}" + ("" if where is None else f" WHERE {where}")
        try:
            frame = self._fetch(connection, f"SELECT {', '.join(fields)}{rest}", f"table {table}")
        except BadInput:
            # the driver derived a column's type from its first values, and later values have
            # another type
            frame = None
        if frame is None or not all(
            frame.schema[name] in _AS_READ[kind if isinstance(kind, str) else "int"]
            for name, kind in columns.items()
        ):
            return self._mix(connection, table, columns, rest, fields[len(columns) :])
        return frame.with_columns(_type(frame, columns))

    def _mix(
        self, connection: Any, table: str, columns: Mapping[str, Column], rest: str, more: list[str]
    ) -> pl.DataFrame:
        """The same for columns with values of the wrong type: those become null and are counted."""
        fields, odd = [], []
        for name, kind in columns.items():
            if isinstance(kind, tuple):
                fields.append(_form(name, kind))
                continue
            fields.append(_sound_form(name, kind))
            odd.append(f"total({_ODD[kind].format(_quote(name))}) AS {_quote(name)}")
        frame = self._fetch(
            connection, f"SELECT {', '.join([*fields, *more])}{rest}", f"table {table}"
        )
        if odd:
            counts = self._fetch(connection, f"SELECT {', '.join(odd)}{rest}", f"table {table}")
            row = counts.row(0, named=True)
            self._faults |= {
                (table, name, rest): int(count) for name, count in row.items() if count
            }
        return frame.with_columns(_type(frame, columns))

    def faults(self) -> list[tuple[str, str, int]]:
        """Notes on values of the wrong type: (severity, what, how many)."""
        return fault_notes(self._faults)

    def _fetch(self, connection: Any, sql: str, noun: str) -> pl.DataFrame:
        from adbc_driver_sqlite import StatementOptions

        try:
            with connection.cursor() as cursor:
                cursor.adbc_statement.set_options(
                    **{StatementOptions.BATCH_ROWS.value: str(_BATCH)}
                )
                cursor.execute(sql)
                frame = pl.DataFrame(cursor.fetch_arrow())
        # an error in a later batch comes through Polars
        except (OSError, connection.Error, pl.exceptions.PolarsError) as error:
            raise BadInput(self.path, f"{noun} cannot be read ({error})") from error
        if not len(frame):  # the driver saw no value, so its types mean nothing
            return pl.DataFrame(schema=dict.fromkeys(frame.columns, pl.Null))
        return frame.rechunk()


class _Connecting:
    """Connects to a file when it is first called, and closes the connection at the end."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._connection: Any = None

    def __call__(self) -> Any:
        if self._connection is None:
            self._connection = _connect(self._uri)
        return self._connection

    def __enter__(self) -> _Connecting:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()


@dataclass(frozen=True, slots=True)
class _Decoder:
    """Reads the integers among the ``wanted`` columns of a table from the file's pages."""

    pages: Pages
    pieces: list[Piece]
    columns: tuple[str, ...]
    wanted: Mapping[str, Column]
    seldom: Mapping[str, Kind]
    tell: Callable[[int], None] | None

    def integers(self, piece: Piece) -> tuple[dict[str, pl.Series], NDArray[np.bool_]]:
        """Return the integer columns of a piece, and which rows have a value in a column ``seldom``."""
        parts = {
            name: (kind if isinstance(kind, tuple) else (name,))
            for name, kind in self.wanted.items()
            if kind == "int" or isinstance(kind, tuple)
        }
        names = [part for each in parts.values() for part in each]
        places = [self.columns.index(name) for name in names]
        seldom = [self.columns.index(name) for name in self.seldom]
        series, marked = self.pages.rows(piece, places, seldom, self.tell)
        read = dict(zip(names, series, strict=True))
        columns = {
            name: (read[each[0]] if len(each) == 1 else packed(*(read[part] for part in each)))
            for name, each in parts.items()
        }
        return {name: column.alias(name) for name, column in columns.items()}, marked


#: How each type is selected, so that the Arrow type does not depend on which rows come first.
_FORMS: Final[Mapping[Kind, str]] = {
    "int": "{0}",
    "text": "coalesce(CAST({0} AS BLOB), x'') AS {0}",
    "real": "coalesce(CAST({0} AS BLOB), x'') AS {0}",
    "blob": "coalesce(CAST({0} AS BLOB), x'') AS {0}",
}


#: The Arrow types of each form if every value has the right type; Null if there are no rows.
_AS_READ: Final[Mapping[Kind, tuple[Any, ...]]] = {
    "int": (pl.Int64, pl.Null),
    "text": (pl.Binary, pl.Null),
    "real": (pl.Binary, pl.Null),
    "blob": (pl.Binary, pl.Null),
}
#: Counts values of the wrong type. Text that was stored as bytes counts as text.
_ODD: Final[Mapping[Kind, str]] = {
    "int": "typeof({0}) IN ('text', 'blob') OR (typeof({0}) = 'real' AND CAST({0} AS INTEGER) <> {0})",
    "text": "0",
    "real": "typeof({0}) = 'blob'",
    "blob": "0",
}


def _sound_form(name: str, kind: Kind) -> str:
    """The form of ``_FORMS`` for a column that has values of the wrong type too."""
    column = _quote(name)
    if kind == "int":  # a real that is a whole number counts as an integer
        return (
            f"CASE WHEN typeof({column}) = 'integer' THEN {column} WHEN typeof({column}) = 'real' "
            f"AND CAST({column} AS INTEGER) = {column} THEN CAST({column} AS INTEGER) END AS {column}"
        )
    if kind == "real":
        return (
            f"CASE WHEN typeof({column}) = 'blob' THEN x'' ELSE coalesce(CAST({column} AS "
            f"BLOB), x'') END AS {column}"
        )
    return _FORMS[kind].format(column)


def _any_known(columns: Iterable[str]) -> str:
    """SQL: whether any of the columns has a value. One coalesce costs a third of eight comparisons."""
    return f"coalesce({', '.join(map(_quote, columns))}, NULL) IS NOT NULL"


def _form(name: str, column: Column) -> str:
    if isinstance(column, tuple):
        x, y, z = map(_quote, column)
        return (  # SQLite gives << and | the same precedence, from the left
            f"((ifnull({x}, 0) & {_EXTENT_X}) << 32) | ((ifnull({y}, 0) & {_EXTENT_YZ}) << 16) "
            f"| (ifnull({z}, 0) & {_EXTENT_YZ}) AS {_quote(name)}"
        )
    return _FORMS[column].format(_quote(name))


def packed(x: pl.Series, y: pl.Series, z: pl.Series) -> pl.Series:
    """Pack the three columns of an extent into one integer, as the SQL of a packed column does."""
    least = (x.fill_null(0) & _EXTENT_X) * (1 << 32)
    packed_column: pl.Series = (
        least + (y.fill_null(0) & _EXTENT_YZ) * (1 << 16) + (z.fill_null(0) & _EXTENT_YZ)
    )
    return packed_column


def _type(frame: pl.DataFrame, columns: Mapping[str, Column]) -> Iterable[pl.Expr]:
    for name, kind in columns.items():
        dtype = frame.schema[name]
        if kind == "int" or isinstance(kind, tuple):
            if dtype != pl.Int64:
                yield pl.col(name).cast(pl.Int64, strict=False)
        elif dtype != pl.Binary:  # no row at all
            yield pl.col(name).cast(_DTYPES[kind])
        elif kind == "blob":
            yield pl.when(pl.col(name).bin.size() > 0).then(pl.col(name)).alias(name)
        else:
            texts = pl.lit(_texts(frame[name]))
            texts_or_null: pl.Expr = pl.when(texts != "").then(texts)
            yield (
                texts_or_null.cast(pl.Float64, strict=False) if kind == "real" else texts_or_null
            ).alias(name)


def _texts(column: pl.Series) -> pl.Series:
    """The bytes as text; invalid UTF-8 is replaced."""
    try:
        checked: pl.Series = column.cast(pl.String)
        return checked
    except pl.exceptions.ComputeError:
        mended = [text.decode("utf-8", "replace") for text in column.to_list()]
        return pl.Series(column.name, mended, pl.String)


def fault_notes(faults: Mapping[tuple[str, str, Any], int]) -> list[tuple[str, str, int]]:
    """Notes on how many values of each (table, column, part of its rows) have the wrong type."""
    counts: Counter[tuple[str, str]] = Counter()
    for (table, column, _), fault in faults.items():
        counts[table, column] += fault
    return [
        ("warning", f"values of {table}.{column} of the wrong type, read as null", count)
        for (table, column), count in sorted(counts.items())
        if count
    ]


def filled(frame: pl.DataFrame, columns: Mapping[str, Column]) -> pl.DataFrame:
    """The frame with all the columns; those that a damaged table lacks are null."""
    absent = [
        pl.lit(None, _DTYPES[kind] if isinstance(kind, str) else pl.Int64).alias(name)
        for name, kind in columns.items()
        if name not in frame.columns
    ]
    if not frame.width:  # the table does not exist
        return pl.DataFrame(schema={name: _DTYPES[kind] if isinstance(kind, str) else pl.Int64
                                    for name, kind in columns.items()})  # fmt: skip
    return frame.with_columns(absent)


def is_database(path: str | os.PathLike[str], ours: Callable[[Database], bool]) -> bool:
    """Whether the file is an SQLite database that ``ours`` accepts. Never raises BadInput."""
    try:
        return ours(Database(path))
    except BadInput:
        return False


def check_magic(path: Path) -> None:
    """Raise BadInput if the file is missing, unreadable or not an SQLite database."""
    try:
        with path.open("rb") as file:
            head = file.read(len(MAGIC))
    except OSError as error:
        raise BadInput(path, error.strerror or "cannot be opened") from error
    if not head:
        raise BadInput(path, "the file is empty")
    if head != MAGIC:
        raise BadInput(path, "not an SQLite database")


def _connect(uri: str) -> Any:
    import adbc_driver_sqlite.dbapi as driver

    return driver.connect(uri)


def _span(table: str) -> str:
    """SQL for the first and last row number: one subquery each, as min and max in one would read it all."""
    name = _quote(table)
    return f"SELECT (SELECT min(rowid) FROM {name}) AS low, (SELECT max(rowid) FROM {name}) AS high"


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
