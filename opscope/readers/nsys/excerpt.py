"""Cut a stretch of time out of a large export of Nsight Systems (SQLite), for a first answer.

Nsight Systems writes each table in order of the rows' starts. So the rows of a stretch are neighbours, and a
search by halves finds them. The stretch is the time on the host in which the kernels in the middle of their
table were launched, with all work that was launched in it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path
from typing import Final
from urllib.parse import quote

from opscope.readers.sqlite import Database

#: Rows of kernels in the stretch; analysed in two seconds.
KERNELS: Final = 60_000
#: The most rows of a table without times, such as the names.
_ROWS: Final = 2_000_000
#: Seconds after which the search is given up, and SQLite's steps between two looks at the clock.
_PATIENCE, _STEPS = 6.0, 100_000
#: Launches are looked for, and their work, in so many times as many rows.
_AROUND: Final = 5
_KERNEL, _CALL = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"


def cut(path: Path, target: Path, kernels: int = KERNELS) -> float | None:
    """Write the rows of a stretch in the middle of ``path`` to the new database ``target``; return their
    share of the kernels. None if there are too few kernels, or tables are not as Nsight Systems writes them.

    ``kernels``: how many. Raises BadInput.
    """
    # SQLite makes its own tables itself
    tables = {
        name: columns
        for name, columns in Database(path).tables.items()
        if not name.startswith("sqlite_")
    }
    source = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
    if not {"start", "end", "correlationId"} <= set(tables.get(_KERNEL, ())) or _CALL not in tables:
        return None
    deadline = time.monotonic() + _PATIENCE
    with contextlib.closing(sqlite3.connect(f"file:{quote(str(target))}", uri=True)) as database:
        database.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
        try:
            database.execute("ATTACH ? AS source", (source,))
            share = _copy(database, tables, kernels)
            database.commit()
            return share
        except sqlite3.Error:  # out of time, or a table of another form
            return None


def _copy(
    database: sqlite3.Connection, tables: dict[str, tuple[str, ...]], kernels: int
) -> float | None:
    count = _last(database, _KERNEL)
    if count < 2 * kernels:
        return None
    part = kernels / count

    def near(table: str, parts: float) -> tuple[int, int]:
        """Return the rows of a table so many parts around its middle."""
        last = _last(database, table)
        return round(last * (1 - parts * part) / 2), round(last * (1 + parts * part) / 2)

    # work runs in the order of its launches, be it seconds later
    launches = (
        f'SELECT min(start), max("end") FROM source.{_CALL} WHERE rowid BETWEEN ? AND ? AND correlationId IN'
        f" (SELECT correlationId FROM source.{_KERNEL} WHERE rowid BETWEEN ? AND ?)"
    )
    first, last = database.execute(launches, (*near(_CALL, _AROUND), *near(_KERNEL, 1))).fetchone()
    if first is None:
        return None
    for table in sorted(tables, key=lambda name: name != _CALL):
        columns, source = tables[table], f"source.{_quoted(table)}"
        rows, where = (0, 1 << 62), "rowid BETWEEN ? AND ?"
        if "start" not in columns:
            if _count(database, f"SELECT 1 FROM {source} LIMIT {_ROWS}") == _ROWS:
                return None
        elif table.startswith("CUPTI_") and {"deviceId", "correlationId"} <= set(columns):
            rows = near(table, _AROUND)
            where += f" AND correlationId IN (SELECT correlationId FROM main.{_CALL})"
        else:
            rows = _row(database, table, first), _row(database, table, last)
            where += f" AND start >= {int(first)}"
            if "end" in columns:
                where += f' AND ("end" IS NULL OR "end" <= {int(last)})'
        database.execute(
            f"CREATE TABLE main.{_quoted(table)} AS SELECT * FROM {source} WHERE {where}", rows
        )
    copied = _count(database, f"SELECT 1 FROM main.{_KERNEL}")
    return copied / count if 2 * copied > kernels else None  # else rows are in another order


def _count(database: sqlite3.Connection, rows: str) -> int:
    return int(database.execute(f"SELECT count(*) FROM ({rows})").fetchone()[0])


def _last(database: sqlite3.Connection, table: str) -> int:
    return int(
        database.execute(f"SELECT max(rowid) FROM source.{_quoted(table)}").fetchone()[0] or 0
    )


def _start(database: sqlite3.Connection, table: str, row: int) -> int:
    """Return the start (ns) of the row, or of the next that has one."""
    rows = f"source.{_quoted(table)} WHERE rowid >= ? AND start IS NOT NULL ORDER BY rowid LIMIT 1"
    first = database.execute(f"SELECT start FROM {rows}", (row,)).fetchone()
    return int(first[0]) if first else (1 << 63) - 1


def _row(database: sqlite3.Connection, table: str, start: int) -> int:
    """Return the first row that starts at ``start`` (ns) or later."""
    low, high = 1, _last(database, table) + 1
    while low < high:
        middle = (low + high) // 2
        if _start(database, table, middle) < start:
            low = middle + 1
        else:
            high = middle
    return low


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
