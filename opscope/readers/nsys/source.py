"""Access to the tables of an Nsight Systems export: one SQLite file, or a folder of Parquet or Arrow files.

``nsys export --type=sqlite``, ``parquetdir`` and ``arrowdir`` write the same tables with the same columns, so
all readers use a ``Source`` and need not know which form it has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import polars as pl

from opscope.core import progress
from opscope.core.tables.columns import to_read
from opscope.readers.errors import BadInput
from opscope.readers.sqlite import PIECE, ROW, Column, Kind, fault_notes

T = TypeVar("T")
_VERSION: Final = re.compile(r"_[vV]?(\d{1,3})\Z")
_SUFFIXES: Final = (".parquet", ".pqt", ".arrow", ".feather", ".ipc", ".arrows")


#: Exceptions that Polars raises for a damaged file; it panics on some.
_DAMAGE: Final = (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException)


def _first_line(error: BaseException) -> str:
    """The first line of a library's error message, shortened."""
    return (str(error) or type(error).__name__).splitlines()[0][:200]


class Source(Protocol):
    """The tables of one export; ``sqlite.Database`` implements this."""

    path: Path
    tables: dict[str, tuple[str, ...]]

    def rows(
        self, table: str, columns: Mapping[str, Kind], where: str | None = None
    ) -> pl.DataFrame: ...

    def scan(
        self,
        table: str,
        columns: Mapping[str, Column],
        convert: Callable[[pl.DataFrame, pl.DataFrame | None], T],
        rare: Mapping[str, Kind] | None = None,
    ) -> list[T]: ...

    def has(self, table: str, *columns: str) -> bool: ...

    def mostly(self, table: str, column: str) -> bool: ...

    def faults(self) -> list[tuple[str, str, int]]: ...


class Versioned:
    """A source whose tables of a newer version (``NVTX_EVENTS_V2``) have the names of those before.

    ``renamed``: the names in the file by those that readers use.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.path = source.path
        self.renamed: dict[str, str] = {}
        for name in sorted(source.tables, key=_version):  # the newest last
            base = base_name(name)
            if base != name and base not in source.tables:
                self.renamed[base] = name
        self.tables = dict(source.tables)
        for base, name in self.renamed.items():
            self.tables[base] = self.tables.pop(name)

    def rows(
        self, table: str, columns: Mapping[str, Kind], where: str | None = None
    ) -> pl.DataFrame:
        return self._source.rows(self.renamed.get(table, table), columns, where)

    def scan(
        self,
        table: str,
        columns: Mapping[str, Column],
        convert: Callable[[pl.DataFrame, pl.DataFrame | None], T],
        rare: Mapping[str, Kind] | None = None,
    ) -> list[T]:
        return self._source.scan(self.renamed.get(table, table), columns, convert, rare)

    def has(self, table: str, *columns: str) -> bool:
        return table in self.tables and set(columns) <= set(self.tables[table])

    def mostly(self, table: str, column: str) -> bool:
        return self._source.mostly(self.renamed.get(table, table), column)

    def faults(self) -> list[tuple[str, str, int]]:
        return self._source.faults()


def base_name(table: str) -> str:
    """Return the table's name without the version that a newer Nsight Systems may append (``_V2``)."""
    return _VERSION.sub("", table)


def _version(table: str) -> int:
    found = _VERSION.search(table)
    return int(found[1]) if found else 0


class Folder:
    """A folder with one Parquet or Arrow file per table, named after the table.

    Raises BadInput if the folder has no such file or one of them cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._frames: dict[str, pl.LazyFrame] = {}
        self._files: dict[str, Path] = {}
        self.tables: dict[str, tuple[str, ...]] = {}
        #: Number of values of the wrong type by (table, column, offset of the rows that were read).
        self._faults: dict[tuple[str, str, int], int] = {}
        for file in sorted(self.path.iterdir()):
            if file.suffix.lower() in _SUFFIXES and file.is_file():
                frame = self._open(file)
                self._frames[file.stem] = frame
                self._files[file.stem] = file
                self.tables[file.stem] = tuple(frame.collect_schema().names())
        if not self.tables:
            raise BadInput(self.path, "no Parquet or Arrow table in this folder")

    def _open(self, file: Path) -> pl.LazyFrame:
        try:
            if file.suffix.lower() in (".parquet", ".pqt"):
                # a file name may contain brackets
                frame = pl.scan_parquet(to_read(file), glob=False)
            else:
                frame = _scan_arrow(file)
            frame.collect_schema()
        except _DAMAGE as error:
            raise BadInput(
                file, f"the Parquet or Arrow file cannot be read ({_first_line(error)})"
            ) from error
        return frame

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table exists and has all the columns."""
        return table in self.tables and set(columns) <= set(self.tables[table])

    def rows(
        self, table: str, columns: Mapping[str, Kind], where: str | None = None
    ) -> pl.DataFrame:
        """Return the table's rows in file order; ``where`` is SQL over its columns."""
        if where is not None and self.has(table):
            context = pl.SQLContext({"it": self._frames[table]})
            frame = context.execute(f"SELECT * FROM it WHERE {where}")
        else:
            frame = self._frames.get(table, pl.LazyFrame())
        table_rows = self._collect(table, frame, columns)
        if table in self._files:
            progress.read_whole(self._files[table])
        return table_rows

    def scan(
        self,
        table: str,
        columns: Mapping[str, Column],
        convert: Callable[[pl.DataFrame, pl.DataFrame | None], T],
        rare: Mapping[str, Kind] | None = None,
    ) -> list[T]:
        """Return ``convert`` of each piece of the table, in row order; see ``sqlite.Database.scan``."""
        if not self.has(table):
            return []
        frame, file = self._frames[table], self._files[table]
        try:
            height = frame.select(pl.len()).collect().item()
        except _DAMAGE as error:
            raise BadInput(
                self.path, f"table {table} cannot be read ({_first_line(error)})"
            ) from error
        results: list[T] = []
        for offset in range(0, max(height, 1), PIECE):
            piece = frame.slice(offset, PIECE)
            seldom = self._collect(table, piece, rare or {}, offset)
            found = None
            if seldom.width:
                seldom = seldom.with_row_index(ROW).filter(
                    pl.any_horizontal(pl.exclude(ROW).is_not_null())
                )
                found = seldom if seldom.height else None
            results.append(convert(self._collect(table, piece, columns, offset), found))
            progress.read_share(file, min(1, (offset + PIECE) / max(height, 1)))
        return results

    def mostly(self, table: str, column: str) -> bool:
        """Whether the table has the column; here a column of nulls costs nothing to read."""
        return self.has(table, column)

    def faults(self) -> list[tuple[str, str, int]]:
        """Notes on values of the wrong type; see ``sqlite.Database.faults``."""
        return fault_notes(self._faults)

    def _collect(
        self, table: str, frame: pl.LazyFrame, columns: Mapping[str, Column], offset: int = 0
    ) -> pl.DataFrame:
        try:
            return self._selected(table, frame, columns, offset)
        except _DAMAGE as error:
            raise BadInput(
                self.path, f"table {table} cannot be read ({_first_line(error)})"
            ) from error

    def _selected(
        self, table: str, frame: pl.LazyFrame, columns: Mapping[str, Column], offset: int
    ) -> pl.DataFrame:
        has = set(self.tables.get(table, ()))
        wanted = []
        for name, kind in columns.items():
            if isinstance(kind, tuple):
                if set(kind) <= has:
                    wanted.append(_extent(kind).alias(name))
            elif name in has:
                wanted.append(_as_kind(name, kind, frame.collect_schema()[name]))
        if not wanted:
            return pl.DataFrame()
        schema = frame.collect_schema()
        doubtful = [
            name
            for name, kind in columns.items()
            if not isinstance(kind, tuple) and name in has and not _fits(kind, schema[name])
        ]
        for name in doubtful:
            has_value = pl.col(name).is_not_null()
            lost = has_value & _as_kind(name, columns[name], schema[name]).is_null()
            self._faults[table, name, offset] = frame.select(lost.sum()).collect().item()
        return frame.select(wanted).collect()


def _scan_arrow(file: Path) -> pl.LazyFrame:
    """Open an Arrow file, or an Arrow stream, which has no index and is read whole."""
    try:
        frame = pl.scan_ipc(to_read(file), glob=False)
        frame.collect_schema()
    except pl.exceptions.PolarsError:
        frame = pl.read_ipc_stream(to_read(file)).lazy()
    return frame


def _extent(axes: tuple[str, str, str]) -> pl.Expr:
    x, y, z = (pl.col(axis).cast(pl.Int64, strict=False).fill_null(0) for axis in axes)
    return x % (1 << 31) * (1 << 32) + y % (1 << 16) * (1 << 16) + z % (1 << 16)


def _decode(column: pl.Series) -> pl.Series:
    """Bytes as text; invalid UTF-8 is replaced, while Polars' cast would fail."""
    texts = [
        None if value is None else value.decode("utf-8", "replace") for value in column.to_list()
    ]
    return pl.Series(column.name, texts, dtype=pl.String)


def _fits(kind: Kind, dtype: Any) -> bool:
    """Whether a column of type ``dtype`` can only have values of the kind, so that none is lost."""
    if kind == "int":
        return bool(dtype.is_integer())
    if kind == "real":
        return bool(dtype.is_numeric())
    return dtype in (pl.String, pl.Categorical, pl.Binary, pl.Null)


def _as_kind(name: str, kind: Any, dtype: Any) -> pl.Expr:
    column = pl.col(name)
    if dtype.is_nested() or dtype.is_temporal() or dtype == pl.Object:
        nothing = {"int": pl.Int64, "real": pl.Float64, "text": pl.String, "blob": pl.Binary}
        # when/then makes it as long as the column, unlike a literal alone
        return pl.when(column.is_null()).then(pl.lit(None, nothing[kind])).alias(name)
    if kind == "int" and dtype.is_float():
        is_whole = (column == column.floor()) & (column.abs() < float(1 << 63))
        column = pl.when(is_whole).then(column)
    if dtype == pl.Binary and kind != "blob":
        column = column.map_batches(_decode, return_dtype=pl.String)
    if kind == "int":
        return column.cast(pl.Int64, strict=False, wrap_numerical=True)
    if kind == "real":
        return column.cast(pl.Float64, strict=False)
    if kind == "text":
        text = column.cast(pl.String, strict=False)
        return pl.when(text != "").then(text).alias(name)
    if dtype == pl.Binary:
        return column
    return column.cast(pl.String).str.decode("hex", strict=False)
