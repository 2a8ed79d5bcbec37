"""Which databases of DLProf are read, and what is said of those of other versions."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

import opscope
from opscope.errors import BadInput
from opscope.readers import format_of


def database(path: Path, *statements: str) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as made, made:
        for one in statements:
            made.execute(one)
    return path


def of_version(path: Path, text: str) -> Path:
    return database(
        path,
        "CREATE TABLE db_version (id INTEGER, current_version TEXT, original_version TEXT)",
        f"INSERT INTO db_version VALUES (1, '{text}', '{text}')",
        "CREATE TABLE something_else (id INTEGER)",
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1.2.0", "a database of DLProf 1.2, without the tables"),
        ("2.0.0", "a database of DLProf 2.0, which is newer than any"),
        ("'||x'4142'||'", "of an unknown version"),
        ("9" * 3000, "of an unknown version"),
        ("1.8.0\x1b[31m", "of an unknown version"),
    ],
)
def test_a_database_of_another_version_is_refused_by_its_version(
    tmp_path: Path, text: str, told: str
) -> None:
    path = of_version(tmp_path / "dlprof_dldb.sqlite", text)
    with pytest.raises(BadInput) as refused:
        opscope.load(path)
    assert told in refused.value.what
    assert "nsys_profile.sqlite" in refused.value.what
    assert len(refused.value.what) < 300


def test_a_database_from_before_versions_were_kept_names_its_version_elsewhere(
    tmp_path: Path,
) -> None:
    path = database(
        tmp_path / "old.sqlite",
        "CREATE TABLE read_only_system_config (id INTEGER, dlprof_version TEXT)",
        "INSERT INTO read_only_system_config VALUES (1, 'v1.1.0')",
    )
    with pytest.raises(BadInput, match=r"a database of DLProf 1\.1, without the tables"):
        opscope.load(path)


def test_a_database_of_something_else_is_not_taken_for_dlprofs(tmp_path: Path) -> None:
    path = database(tmp_path / "x.sqlite", "CREATE TABLE db_version (version TEXT)")
    with pytest.raises(BadInput, match="not a trace of Nsight Systems"):
        format_of(path)


def test_the_version_of_dlprof_1_8_needs_no_word(shared: Path) -> None:
    assert not [
        one
        for one in opscope.load(shared / "dlprof/dlprof_dldb.sqlite").notes()["what"]
        if "newer" in one or "does not name" in one
    ]


def test_a_newer_database_with_the_known_tables_is_read_and_told(
    shared: Path, tmp_path: Path
) -> None:
    path = tmp_path / "dlprof_dldb.sqlite"
    shutil.copyfile(shared / "dlprof/dlprof_dldb.sqlite", path)
    database(path, "UPDATE db_version SET current_version = '1.9.0'")
    profile = opscope.load(path)
    assert len(profile.trace["kernels"]) == 59
    told = profile.notes().filter(severity="warning")["what"].to_list()
    assert [one for one in told if "DLProf 1.9, newer than any that is known" in one]
