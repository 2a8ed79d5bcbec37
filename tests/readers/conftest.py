"""Make small Nsight Systems files from rows, so that a test shows the rows that matter."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PID, OTHER = 4000, 4001
Rows = list[dict[str, Any]]


def gpid(pid: int = PID) -> int:
    return (1 << 56) | (pid << 24)


def gtid(tid: int = PID, pid: int = PID) -> int:
    return gpid(pid) | tid


def write_tables(path: Path, tables: dict[str, Rows]) -> Path:
    """Write a SQLite file with these rows; a table has every column that any of its rows has."""
    with sqlite3.connect(path) as db:
        for table, rows in tables.items():
            columns = list(dict.fromkeys(name for row in rows for name in row))
            db.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            db.executemany(
                f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})",
                [[row.get(name) for name in columns] for row in rows],
            )
    db.close()
    return path


@pytest.fixture
def nsys_file(tmp_path: Path) -> Callable[..., Path]:
    """``nsys_file(NVTX_EVENTS=[...], ...)`` makes an export; ``strings`` are the texts of ids 0, 1, …"""

    def make(strings: tuple[str, ...] = ("kernel",), **tables: Rows) -> Path:
        ids = [{"id": number, "value": text} for number, text in enumerate(strings)]
        tables.setdefault("PROCESSES", [{"globalPid": gpid(), "pid": PID, "name": "python3"}])
        path = tmp_path / f"made{len(list(tmp_path.iterdir()))}.sqlite"
        return write_tables(path, {"StringIds": ids, **tables})

    return make


@pytest.fixture
def event() -> Callable[..., dict[str, Any]]:
    """A row of NVTX_EVENTS; by default a push/pop range on the main thread."""

    def make(start: int, end: int | None, **columns: Any) -> dict[str, Any]:
        row = {
            "start": start, "end": end, "eventType": 59, "globalTid": gtid(), "domainId": 0,
            "text": None, "textId": None, "category": None,
        }  # fmt: skip
        return {**row, **columns}

    return make


@pytest.fixture
def ids() -> Any:
    """``ids.gtid(tid, pid)`` and ``ids.gpid(pid)``: Nsight's serialized ids."""

    class Ids:
        pid, other = PID, OTHER
        gtid = staticmethod(gtid)
        gpid = staticmethod(gpid)
        write_tables = staticmethod(write_tables)

    return Ids
