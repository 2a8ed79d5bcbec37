"""Read opscope's profiles: a folder ``NAME.opscope`` of Parquet tables, each read only when used.

``meta.json`` lists what is in the folder. Each table is one Parquet file or, with several ranks, several
files in row order. ``docs/profile-format.md`` has the layout and what a later version may change.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from opscope.core import progress
from opscope.core.once import lock_of
from opscope.core.schema import TABLES
from opscope.core.tables.columns import pieces, sharing_nulls, to_read
from opscope.core.tables.mapped import Mapped, let_go
from opscope.core.tables.numbers import Numbers
from opscope.core.tables.trace import Trace, conform, table_schema
from opscope.readers.errors import BadInput
from opscope.readers.sound import sound

#: The format's version. A reader refuses a higher one; tables and columns may be added without raising it.
VERSION: Final = 1
META: Final = "meta.json"
_LARGEST_META: Final = 16 << 20
_FILE = re.compile(r"[a-z][a-z0-9_.]{0,80}(/[a-z0-9-]{1,40})?\.parquet\Z")
#: Exceptions that Polars raises for a damaged file; on some it panics.
DAMAGE: Final = (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException)
#: Files with more rows are refused: the rows of a trace differ in their times, which take at least a byte.
_ROWS_ALWAYS_ALLOWED: Final = 1 << 20
_ROWS_PER_BYTE: Final = 16
#: Tables with fewer rows do not get a file of their own.
_ROWS_IN_MEMORY: Final = 1 << 18
#: Columns of events that every file must have.
TIMES: Final = frozenset({"start", "end", "time"})


class Tables(dict[str, pl.DataFrame]):
    """The tables of a profile, each read from its files on first use, by one thread. Results (``own`` is
    false) are read each time; the caller keeps or drops them."""

    def __init__(
        self,
        path: Path,
        files: Mapping[str, list[Path]],
        rows: Mapping[str, int],
        own: bool,
        only: Mapping[str, Collection[str]] | None = None,
        mapped: Mapped | None = None,
    ) -> None:
        """``only``: the columns to read of a trace's tables; other tables are read completely. ``mapped``:
        where these tables are kept, if not in memory."""
        super().__init__()
        self._mapped = mapped
        self._path, self._files, self._rows, self._own = path, dict(files), dict(rows), own
        self._only = dict(only or {})
        for name in files:
            super().__setitem__(name, pl.DataFrame())

    def plus(self, files: Mapping[str, Path]) -> Tables:
        """Return these tables and those in ``files``, which replace any of the same name."""
        more = {name: [file] for name, file in files.items()}
        rows = {name: row for name, row in self._rows.items() if name not in files}
        return Tables(self._path, {**self._files, **more}, rows, self._own)

    def narrowed(
        self, only: Mapping[str, Collection[str]], mapped: Mapped | None = None
    ) -> Tables | None:
        """Return the trace's tables, restricted to the columns in ``only`` for the tables named there; other
        columns are then an error. They are kept in ``mapped``. None if any table was read already or
        changed."""
        if any(name not in self._files for name in only):
            return None
        tables = Tables(self._path, self._files, self._rows, self._own, only, mapped)
        for name in self.keys() - self._files.keys():
            tables[name] = self[name]
        return tables

    def __getitem__(self, name: str) -> pl.DataFrame:
        with lock_of(self, "files"):
            return self._read(name)

    def unread(self, name: str) -> int | None:
        """Return the number of rows of a table that was not read yet; None if it was. Raises BadInput."""
        files = self._files.get(name)
        if not files:
            return None
        if name not in self._rows:
            self._rows[name] = sum(_length(self._path, file) for file in files)
        return self._rows[name]

    def part(
        self, name: str, wanted: Collection[str], row: int | None = None
    ) -> tuple[pl.DataFrame, set[str]]:
        """Return those of the ``wanted`` columns that a table has, and the names of all its columns; only
        one ``row`` if given. If the table was not read yet, only these columns are read (for one row, only
        the piece that contains it), and they are not kept in memory."""
        files = self._files.get(name)
        if not files:
            frame = self[name] if files is None else self._read(name)
            some = frame.select(column for column in frame.columns if column in wanted)
            return some if row is None else some[row], set(frame.columns)
        with_all = _columns(self._path, files)
        columns_of_all = set.intersection(*with_all)
        if self._own:
            columns_of_all &= set(TABLES[name])
        read = sorted(columns_of_all.intersection(wanted))
        if row is None and not read and self._own and wanted:
            return _only_nulls(name, columns_of_all, wanted, self.unread(name) or 0)
        if row is None:
            frame = self._size(name, read)
        else:
            frame = _row(self._path, name, files, self._own, read, row)
        if self._own and frame.width:
            frame, columns_of_all = _with_nulls(name, frame, columns_of_all, wanted)
        return frame, columns_of_all

    def several(self, name: str) -> bool:
        """Whether the table is in more than one file."""
        return len(self._files.get(name, ())) > 1

    def pieces(self, name: str) -> Iterator[pl.DataFrame]:
        """Yield the rows of a result, a file at a time, and keep none. Raises BadInput."""
        rows = 0
        for file in self._files[name]:
            piece = _load(self._path, name, [file], self._own)
            rows += len(piece)
            yield piece
        self._refuse_other(name, rows)

    def _read(self, name: str) -> pl.DataFrame:
        files = self._files.get(name)
        if files is not None:
            wanted = self._only.get(name)
            if wanted is not None and files:
                frame = self._narrow(name, wanted)
            else:
                frame = self._size(name)
            if not self._own:
                return frame
            self[name] = self._sound(name, frame)
        return super().__getitem__(name)

    def _narrow(self, name: str, wanted: Collection[str]) -> pl.DataFrame:
        """Return some columns of a trace's table, each in one piece, because NumPy copies a column in several
        pieces at each access. A column that no file has takes no memory until it is used."""
        columns_of_all = set.intersection(*_columns(self._path, self._files[name]))
        lacking = sorted((TIMES & {*TABLES[name]} & {*wanted}) - columns_of_all)
        if lacking:
            raise BadInput(self._path, f"table {name} has no column {lacking[0]}")
        if self._mapped is not None and (self.unread(name) or 0) > _ROWS_IN_MEMORY:
            # only one column at a time is in memory besides the result
            moved = [
                self._in_file(name, name_of_column)
                for name_of_column in sorted(columns_of_all.intersection(wanted))
            ]
            frame, _ = _with_nulls(
                name, pl.DataFrame(moved), columns_of_all & set(TABLES[name]), wanted
            )
            let_go()
            return frame.select(
                name_of_column for name_of_column in TABLES[name] if name_of_column in wanted
            )
        frame, _ = self.part(name, wanted)
        for column in columns_of_all.intersection(wanted):
            frame = frame.with_columns(frame[column].rechunk())
        return frame.select(
            name_of_column for name_of_column in TABLES[name] if name_of_column in wanted
        )

    def _in_file(self, name: str, column: str) -> pl.Series:
        """Return a column of a trace's table, in a mapped file if possible, and then read piece by piece."""
        if self._mapped is not None:
            dtype, row_count = table_schema(name)[column], self.unread(name) or 0
            column_made = self._mapped.pieces(
                column, dtype, self._column_pieces(name, column), row_count
            )
            if column_made is not None:
                return column_made
        column_read: pl.Series = self.part(name, [column])[0][column].rechunk()
        return column_read

    def numbers(self, name: str, column: str) -> Numbers:
        """Return a column of integers of a trace's table that was not read yet, in mapped files if long."""
        columns_of_any = (
            set.union(*_columns(self._path, self._files[name])) if self._files[name] else set()
        )
        row_count = self.unread(name) or 0
        parts = self._column_pieces(name, column) if column in columns_of_any else ()
        return Numbers.of_pieces(parts, row_count, self._mapped)

    def _column_pieces(self, name: str, column: str) -> Iterator[pl.Series]:
        """Yield a column of a trace's table in pieces. Raises BadInput."""
        dtype = table_schema(name)[column]
        self._refuse_other(name, sum(_length(self._path, file) for file in self._files[name]))
        for file in self._files[name]:
            try:
                refuse_pipe(file)
                _refuse_bomb(self._path, file)
                rows = pl.scan_parquet(to_read(file), glob=False)
                own = column in rows.collect_schema()
                of = pl.col(column).cast(dtype) if own else pl.lit(None, dtype).alias(column)
                total: int = rows.select(pl.len()).collect().item()
                with progress.reading([file]):
                    for part in pieces(total, _ROWS_IN_MEMORY):
                        some = rows.slice(part.start, part.stop - part.start)
                        column_read = some.select(of).collect().to_series()
                        yield column_read
                    progress.read_whole(file)
            except DAMAGE as error:
                raise _damaged(self._path, file, error) from error

    def _size(self, name: str, wanted: list[str] | None = None) -> pl.DataFrame:
        """Return the table from its files. Raises BadInput if its number of rows is not the recorded one."""
        frame = _load(self._path, name, self._files[name], self._own, wanted)
        self._refuse_other(name, len(frame))
        return frame

    def _refuse_other(self, name: str, count: int) -> None:
        rows = self._rows.get(name, count)
        if count != rows:
            message = f"table {name} has {count} rows, but {META} says {rows}"
            raise BadInput(self._path, message)

    def _sound(self, name: str, frame: pl.DataFrame) -> pl.DataFrame:
        """Set impossible values to null and note that. Raises BadInput if times are impossible."""
        tables = {name: frame}
        for severity, message, count in sound(tables):
            # tables refer to rows by number, so no row may be dropped
            if message.startswith("rows "):
                raise BadInput(self._path, f"{count} {message}")
            note = {"severity": [severity], "what": [message], "how_many": [count]}
            row = pl.DataFrame(note, schema=table_schema("notes"))
            # the table is being read: accessing it would read it again, for ever
            if name == "notes":
                tables[name] = pl.concat([tables[name], row], how="vertical_relaxed")
            else:
                self["notes"] = pl.concat([self["notes"], row])
        return tables[name]

    def __setitem__(self, name: str, frame: pl.DataFrame) -> None:
        self._files.pop(name, None)
        super().__setitem__(name, frame)

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def items(self) -> Any:
        return [(name, self[name]) for name in self]

    def values(self) -> Any:
        return [self[name] for name in self]

    def copy(self) -> dict[str, pl.DataFrame]:
        return dict(self.items())


def _with_nulls(
    name: str, frame: pl.DataFrame, columns_there: set[str], wanted: Collection[str]
) -> tuple[pl.DataFrame, set[str]]:
    """Return columns of a trace's table, including missing ones as nulls, and the names of all its
    columns."""
    schema = table_schema(name)
    lacking = [
        name_of_column
        for name_of_column in schema
        if name_of_column not in columns_there and name_of_column not in TIMES
    ]
    nulls = (
        pl.lit(None, schema[name_of_column]).alias(name_of_column)
        for name_of_column in lacking
        if name_of_column in wanted
    )
    return frame.with_columns(nulls), columns_there.union(lacking)


def _only_nulls(
    name: str, columns_there: set[str], wanted: Collection[str], count: int
) -> tuple[pl.DataFrame, set[str]]:
    """Like ``_with_nulls`` if the files have none of the columns: return that many rows of optional
    columns."""
    schema = table_schema(name)
    lacking = [
        name_of_column
        for name_of_column in schema
        if name_of_column not in columns_there and name_of_column not in TIMES
    ]
    nulls = [
        pl.Series(name_of_column, [None], schema[name_of_column])
        for name_of_column in lacking
        if name_of_column in wanted
    ]
    return pl.DataFrame([null.new_from_index(0, count) for null in nulls]), columns_there.union(
        lacking
    )


def read(path: str | os.PathLike[str]) -> tuple[Trace, Tables, dict[str, Any]]:
    """Return the trace, the extra tables and the meta that ``write`` was given. Raises BadInput.

    Only ``meta.json`` and the files' footers are read now; the tables are read on first use. If a table's
    file is damaged, that first use raises BadInput.
    """
    folder = Path(path)
    head = _head(folder)
    own = {name: files for name, files in _files(folder, head, "tables").items() if name in TABLES}
    for files in own.values():
        _check(folder, files)
    present = frozenset(own)
    rows = _rows(head, "tables")
    own.update({name: [] for name in TABLES if name not in own})
    origin = head.get("origin")
    meta = head.get("meta")
    trace = Trace(
        Tables(folder, own, rows, True), present, origin if isinstance(origin, dict) else {}
    )
    extra = Tables(folder, _files(folder, head, "extra"), _rows(head, "extra"), False)
    return trace, extra, meta if isinstance(meta, dict) else {}


def scan(path: str | os.PathLike[str], table: str) -> pl.LazyFrame:
    """Return one table of a profile, or ``extra.NAME``, for lazy queries. Raises BadInput, KeyError."""
    folder = Path(path)
    head = _head(folder)
    kind, _, name = (
        ("extra", "", table[6:]) if table.startswith("extra.") else ("tables", "", table)
    )
    files = _files(folder, head, kind).get(name)
    if files is None:
        raise KeyError(table)
    if not files:
        return pl.LazyFrame(schema=table_schema(name) if kind == "tables" else None)
    _check(folder, files)
    frame = pl.scan_parquet([to_read(file) for file in files], glob=False)
    if kind == "tables":
        columns_there, schema = set(frame.collect_schema()), table_schema(name)
        frame = frame.with_columns(
            pl.lit(None, schema[name_of_column]).alias(name_of_column)
            for name_of_column in schema
            if name_of_column not in columns_there
        )
    return frame


def _head(folder: Path) -> dict[str, Any]:
    file = folder / META
    try:
        refuse_pipe(file)
        if file.stat().st_size > _LARGEST_META:
            raise BadInput(folder, f"{META} is larger than any profile's")
        head = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise BadInput(folder, f"{META}: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(folder, f"{META} is not valid JSON ({error})") from error
    version = head.get("version")
    if head.get("format") != "opscope" or type(version) is not int or version < 1:
        raise BadInput(folder, f"{META} does not belong to a profile")
    if version > VERSION:
        raise BadInput(
            folder, f"written by a newer opscope (format {version}; this one reads up to {VERSION})"
        )
    return head


def _files(folder: Path, head: dict[str, Any], kind: str) -> dict[str, list[Path]]:
    """Return the files of each table; names that could lead out of the folder are refused."""
    files_by_table: dict[str, list[Path]] = {}
    listed = head.get(kind)
    for name, entry in listed.items() if isinstance(listed, dict) else ():
        files = entry.get("files") if isinstance(entry, dict) else None
        if not isinstance(files, list) or not all(
            isinstance(file, str) and _FILE.match(file) for file in files
        ):
            raise BadInput(folder, f"{META} does not list the files of table {str(name)[:64]!r}")
        files_by_table[name] = [folder / file for file in files]
    return files_by_table


def _rows(head: dict[str, Any], kind: str) -> dict[str, int]:
    """The number of rows of each table, if ``meta.json`` has it."""
    listed = head.get(kind)
    entries = listed.items() if isinstance(listed, dict) else ()
    return {name: entry["rows"] for name, entry in entries if type(entry.get("rows")) is int}


def _check(folder: Path, files: list[Path]) -> None:
    _columns(folder, files)


def _columns(folder: Path, files: list[Path]) -> list[set[str]]:
    """Return the columns of each file. Raises BadInput for a damaged one."""
    columns_of_files = []
    for file in files:
        try:
            refuse_pipe(file)
            columns_of_files.append(
                set(pl.scan_parquet(to_read(file), glob=False).collect_schema())
            )
        except DAMAGE as error:
            raise _damaged(folder, file, error) from error
    return columns_of_files


def _length(folder: Path, file: Path) -> int:
    """Return the number of a file's rows. Raises BadInput."""
    try:
        refuse_pipe(file)
        row_count: int = (
            pl.scan_parquet(to_read(file), glob=False).select(pl.len()).collect().item()
        )
        return row_count
    except DAMAGE as error:
        raise _damaged(folder, file, error) from error


def _row(
    folder: Path, name: str, files: list[Path], own: bool, wanted: list[str], row: int
) -> pl.DataFrame:
    """Return one row of a table. Raises IndexError if it has fewer."""
    for file in files:
        try:
            row_count = pl.scan_parquet(to_read(file), glob=False).select(pl.len()).collect().item()
            if row < row_count:
                row_read = (
                    pl.scan_parquet(to_read(file), glob=False)
                    .select(wanted)
                    .slice(row, 1)
                    .collect()
                )
                schema = table_schema(name) if own else row_read.schema
                return row_read.select(pl.col(column).cast(schema[column]) for column in wanted)
        except DAMAGE as error:
            raise _damaged(folder, file, error) from error
        row -= row_count
    raise IndexError(f"table {name} has no such row")


def _load(
    folder: Path, name: str, files: list[Path], own: bool, wanted: list[str] | None = None
) -> pl.DataFrame:
    together = None if wanted is None or own else _load_together(files, wanted)
    if together is not None:
        return sharing_nulls(together)
    frames = []
    for file in files:
        try:
            refuse_pipe(file)
            _refuse_bomb(folder, file)
            with progress.reading([file]):
                # a name may contain brackets
                frame = pl.read_parquet(to_read(file), columns=wanted, glob=False)
                progress.read_whole(file)
            if own and wanted is not None:
                schema = table_schema(name)
                frame = frame.select(pl.col(column).cast(schema[column]) for column in wanted)
            elif own:  # columns that a later version added are left out
                columns = [column for column in TABLES[name] if column in frame.columns]
                frame = conform(name, frame.select(columns))
        except DAMAGE as error:
            raise _damaged(folder, file, error) from error
        frames.append(frame)
    if frames:
        return sharing_nulls(pl.concat(frames))
    return pl.DataFrame(schema=table_schema(name)) if own else pl.DataFrame()


def _load_together(files: list[Path], wanted: list[str]) -> pl.DataFrame | None:
    """Return a few columns of a table in many files, in a third of the time of reading file by file. None if
    there is one file, or any problem: reading file by file then finds the bad one."""
    if len(files) < 2 or not wanted:
        return None
    try:
        for file in files:
            refuse_pipe(file)
        rows = (
            pl.scan_parquet([to_read(file) for file in files], glob=False)
            .select(pl.len())
            .collect()
            .item()
        )
        if rows > _ROWS_ALWAYS_ALLOWED + _ROWS_PER_BYTE * sum(
            file.stat().st_size for file in files
        ):
            return None
        with progress.reading(files):
            frame = pl.read_parquet([to_read(file) for file in files], columns=wanted, glob=False)
            for file in files:
                progress.read_whole(file)
    except DAMAGE:
        return None
    return frame


def refuse_pipe(file: Path) -> None:
    """Raise OSError unless ``file`` is a regular file: opening a pipe would wait for its writer."""
    if not stat.S_ISREG(file.stat().st_mode):
        raise OSError("not a regular file")


def _refuse_bomb(folder: Path, file: Path) -> None:
    """Refuse a tiny file with many rows: a constant column takes no space in a file, but fills the memory."""
    size, rows = (
        file.stat().st_size,
        pl.scan_parquet(to_read(file), glob=False).select(pl.len()).collect().item(),
    )
    if rows > _ROWS_ALWAYS_ALLOWED + _ROWS_PER_BYTE * size:
        raise BadInput(folder, f"{file.name} has {rows} rows in {size} bytes, which no profile has")


def _damaged(folder: Path, file: Path, error: BaseException) -> BadInput:
    if isinstance(error, FileNotFoundError):
        return BadInput(folder, f"{file.name} is missing")
    if isinstance(error, PermissionError):
        return BadInput(folder, f"no permission to read {file.name}")
    message = (str(error) or type(error).__name__).splitlines()[0][:200]
    return BadInput(folder, f"{file.name} is damaged ({message})")
