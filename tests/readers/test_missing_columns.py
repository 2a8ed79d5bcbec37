"""An export that lacks any one of its columns is read without it, or refused in one line."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest

import opscope
from opscope.readers import BadInput
from tests.script import ROOT

sys.path.insert(0, str(ROOT / "scripts"))


@pytest.mark.parametrize("every", [3, 1])
@pytest.mark.parametrize("make", ["nsys_sqlite", "nvprof", "dlprof"])
def test_each_column_may_be_missing(make: str, every: int, tmp_path: Path) -> None:
    seeds = pytest.importorskip("fuzz_seeds")
    whole = getattr(seeds, make)(tmp_path / "whole.sqlite")
    columns = _columns(whole)[::every]
    assert len(columns) > 10
    read = 0
    for table, column in columns:
        lacking = tmp_path / "lacking.sqlite"
        shutil.copy(whole, lacking)
        with contextlib.closing(sqlite3.connect(lacking)) as file:
            file.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
            file.commit()
        profile = _opened(lacking, f"without {table}.{column}")
        if profile is None:
            continue
        assert len(profile.summary()) == 1, (table, column)
        read += 1
    assert read > len(columns) // 4


def _opened(path: Path, which: str) -> opscope.Profile | None:
    """The profile of a file; None where it is refused by name."""
    try:
        return opscope.load(path, strict=True)
    except BadInput as error:
        refused = str(error)
    except Exception as error:
        raise AssertionError(f"{which}: {error}") from error
    assert str(path) in refused, which
    return None


def _columns(path: Path) -> list[tuple[str, str]]:
    """The tables and columns of a file whose table has another column besides."""
    with contextlib.closing(sqlite3.connect(path)) as file:
        tables = [
            row[0] for row in file.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        found = []
        for table in tables:
            names = [row[1] for row in file.execute(f'PRAGMA table_info("{table}")') if not row[5]]
            found += [(table, name) for name in names if len(names) > 1]
        return found


@pytest.mark.parametrize("column", ["start", "end"])
def test_kernels_and_copies_without_a_column_of_times_have_no_time(
    column: str, tmp_path: Path
) -> None:
    """The file says that they ran: their number is not known to be 0."""
    seeds = pytest.importorskip("fuzz_seeds")
    path = seeds.nsys_sqlite(tmp_path / "a.sqlite")
    with contextlib.closing(sqlite3.connect(path)) as file:
        for kind in ("KERNEL", "MEMCPY", "MEMSET"):
            file.execute(f'ALTER TABLE CUPTI_ACTIVITY_KIND_{kind} DROP COLUMN "{column}"')
        file.execute("DELETE FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
        file.commit()
    profile = opscope.load(path)
    row = profile.summary().row(0, named=True)
    assert (row["kernels"], row["kernel_time"], row["copies"], row["devices"]) == (None,) * 4
    assert not profile.cpu_only
    assert "no time" in profile.lost_kernels()["reason"][0]
