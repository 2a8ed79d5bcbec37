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
