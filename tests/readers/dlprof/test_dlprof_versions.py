"""Which databases of DLProf are read, and what is said of those of other versions."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import polars as pl
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


def without(path: Path, table: str, column: str) -> None:
    """Take a column out of a table; the database is one of DLProf 1.2."""
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        for (view,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchall():
            db.execute(f"DROP VIEW {view}")
        names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        assert column in names
        kept = ", ".join(name for name in names if name != column)
        db.execute(f"CREATE TABLE kept AS SELECT {kept} FROM {table}")
        db.execute(f"DROP TABLE {table}")
        db.execute(f"ALTER TABLE kept RENAME TO {table}")
        db.execute("UPDATE db_version SET current_version = '1.2.0'")


@pytest.mark.parametrize(
    ("table", "column", "lost"),
    [
        ("read_only_ops", "data_type_id", "Data Type"),
        ("read_only_op_instances", "input_shapes_id", "Input Shapes"),
    ],
)
def test_an_older_database_is_read_as_far_as_it_goes_and_told(
    shared, tmp_path, table, column, lost
):
    from opscope.reports import dlprof

    path = tmp_path / "dlprof_dldb.sqlite"
    shutil.copyfile(shared / "dlprof/dlprof_dldb.sqlite", path)
    without(path, table, column)
    profile = opscope.load(path)
    told = profile.notes().filter(severity="warning")["what"].to_list()
    assert [note for note in told if f"{table}.{column}" in note and "DLProf 1.8" in note]
    (section,) = dlprof.tables(profile, "detail")
    whole = opscope.load(shared / "dlprof/dlprof_dldb.sqlite")
    (golden,) = dlprof.tables(whole, "detail")
    time = "Total GPU Time (ns)"
    assert section.frame[time].sum() == golden.frame[time].sum() > 0
    known, before = (len(one.frame[lost].drop_nulls()) for one in (section, golden))
    assert before > known


def summary_of(path: Path) -> tuple[dict, dict, dict]:
    """The system configuration, the figures, and the GPU time of each row of kernels."""
    from opscope.reports import dlprof

    parts = {part.title: part.frame for part in dlprof.tables(opscope.load(path), "summary")}
    kernels = parts["All Kernels"]
    times = dict(zip(kernels[""], kernels["GPU Time (ns)"], strict=True))
    return (
        parts["System Config"].row(0, named=True),
        parts["Summary Report"].row(0, named=True),
        times,
    )


def test_the_name_of_a_profile_is_read(shared, tmp_path):
    path = tmp_path / "dlprof_dldb.sqlite"
    shutil.copyfile(shared / "dlprof/dlprof_dldb.sqlite", path)
    assert "Profile Name" not in summary_of(path)[0]
    database(path, "UPDATE read_only_system_config SET profile_name = 'night run'")
    assert summary_of(path)[0]["Profile Name"] == "night run"


def test_tables_that_an_older_database_lacks_count_nothing_as_0(shared, tmp_path):
    path = tmp_path / "dlprof_dldb.sqlite"
    shutil.copyfile(shared / "dlprof/dlprof_dldb.sqlite", path)
    _, figures, times = summary_of(path)
    assert times["Memory"] > 0
    assert figures["Memory Duration %"] > 0
    lacking = ("read_only_memcpys", "read_only_memsets", "read_only_grid_block")
    database(path, *(f"DROP TABLE {table}" for table in lacking))
    _, left, without_copies = summary_of(path)
    assert left["Memory Duration %"] is None
    assert without_copies == times | {"All kernels": None, "Memory": None}
    profile = opscope.load(path)
    warnings = " ".join(profile.notes().filter(severity="warning")["what"])
    assert all(table in warnings for table in lacking)
    assert "out of range" not in warnings
    assert profile.trace["kernels"]["grid"].null_count() == 59


def test_without_long_names_kernels_have_their_short_ones(shared, tmp_path):
    from opscope.reports import dlprof

    path = tmp_path / "dlprof_dldb.sqlite"
    shutil.copyfile(shared / "dlprof/dlprof_dldb.sqlite", path)
    (golden,) = dlprof.tables(opscope.load(path), "kernel")
    without(path, "read_only_kernels", "long_name_id")
    (section,) = dlprof.tables(opscope.load(path), "kernel")
    assert set(section.frame["Kernel Name"]) == set(golden.frame["Kernel Name"])


def test_without_types_an_op_has_that_of_its_last_call(shared, tmp_path):
    from opscope.reports import dlprof

    path = tmp_path / "dlprof_dldb.sqlite"
    shutil.copyfile(shared / "dlprof/dlprof_dldb.sqlite", path)
    (golden,) = dlprof.tables(opscope.load(path), "detail")
    without(path, "read_only_ops", "op_type_id")
    (section,) = dlprof.tables(opscope.load(path), "detail")
    columns = ["Op ID", "Op Type", "TC Eligible"]
    named = [
        frame.filter(pl.col("Direction").is_not_null()).select(pl.col(columns).cast(pl.String))
        for frame in (section.frame, golden.frame)
    ]
    assert named[0].rows() == named[1].rows()


@pytest.mark.parametrize(
    ("table", "column"),
    [("read_only_op_instances", "cpu_start"), ("read_only_kernels", "gpu_stop")],
)
def test_a_database_without_times_is_refused_by_its_version(shared, tmp_path, table, column):
    path = tmp_path / "dlprof_dldb.sqlite"
    shutil.copyfile(shared / "dlprof/dlprof_dldb.sqlite", path)
    without(path, table, column)
    with pytest.raises(BadInput, match=r"a database of DLProf 1\.2, without the tables"):
        opscope.load(path)
