"""A database whose writer did not finish is read with what the writer left beside it, or refused."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
import subprocess
import sys
import zipfile
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import opscope
from opscope import readers
from opscope.readers import BadInput
from tests.script import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
seeds = pytest.importorskip("fuzz_seeds")
#: The table of each format whose rows are taken away and given back, and what makes a small database of it.
KERNELS = {
    "nsys_sqlite": "CUPTI_ACTIVITY_KIND_KERNEL",
    "nvprof": "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
}


@contextmanager
def half_written(tmp_path: Path, make: str, mode: str):
    """A copy of a database as a writer that was killed leaves it, and its number of kernels when it is whole.

    ``wal``: half of the kernels are in the log alone. ``delete``: a transaction that takes all kernels away is
    in the database, and the journal takes it back.
    """
    source = getattr(seeds, make)(tmp_path / "source.sqlite")
    table, kernels = KERNELS[make], len(readers.open(source)["kernels"])
    with closing(sqlite3.connect(source, isolation_level=None)) as database:
        database.execute(f"PRAGMA journal_mode = {mode}")
        if mode == "wal":
            rows = database.execute(f"SELECT * FROM {table} WHERE rowid % 2 = 0").fetchall()
            database.execute(f"DELETE FROM {table} WHERE rowid % 2 = 0")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            places = ", ".join("?" * len(rows[0]))
            database.executemany(f"INSERT INTO {table} VALUES ({places})", rows)
        else:
            database.execute("PRAGMA cache_spill = 1")
            database.execute("PRAGMA cache_size = 1")
            database.execute("BEGIN")
            database.execute(f"DELETE FROM {table}")
            database.execute("CREATE TABLE filler AS SELECT randomblob(100000) AS words")
        killed = tmp_path / "killed.sqlite"
        for suffix in ("", "-wal", "-journal"):
            if (side := source.with_name(source.name + suffix)).is_file():
                shutil.copy(side, killed.with_name(killed.name + suffix))
        yield killed, kernels


@pytest.mark.parametrize("mode", ["wal", "delete"])
@pytest.mark.parametrize("make", KERNELS)
def test_what_the_writer_left_beside_it_is_read_too(tmp_path, make, mode):
    with half_written(tmp_path, make, mode) as (path, kernels):
        files = {file.name: file.read_bytes() for file in tmp_path.glob("killed*")}
        assert len(files) == 2
        trace = readers.open(path)
        assert len(trace["kernels"]) == kernels
        assert "its writer did not finish" in trace["notes"]["what"][0]
        assert str(tmp_path / "killed.sqlite") in str(trace.origin)
        assert files == {file.name: file.read_bytes() for file in tmp_path.glob("killed*")}


@pytest.mark.parametrize("mode", ["wal", "delete"])
@pytest.mark.parametrize("linked", ["the database", "all its files"])
def test_so_is_it_through_a_link(tmp_path, mode, linked):
    """Stores of data name a file by its content and link to it, so that nothing lies beside the content."""
    (tmp_path / "store").mkdir()
    with half_written(tmp_path, "nsys_sqlite", mode) as (path, kernels):
        for number, file in enumerate(sorted(tmp_path.glob("killed*"))):
            if linked == "all its files":
                file = file.rename(tmp_path / "store" / str(number)).absolute()
                (
                    tmp_path
                    / (
                        "killed.sqlite"
                        + ["", f"-{'journal' if mode == 'delete' else 'wal'}"][number]
                    )
                ).symlink_to(file)
            elif not number:
                (tmp_path / "store" / "link.sqlite").symlink_to(file)
        asked = path if linked == "all its files" else tmp_path / "store" / "link.sqlite"
        assert len(readers.open(asked)["kernels"]) == kernels


@pytest.mark.parametrize("packs", ["the database", "all its files"])
@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_so_is_it_beside_a_packed_database(tmp_path, mode, packs):
    with half_written(tmp_path, "nsys_sqlite", mode) as (path, kernels):
        for file in sorted(tmp_path.glob("killed*")):
            if file == path or packs == "all its files":
                file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
                file.unlink()
        assert len(readers.open(path.with_name(path.name + ".gz"))["kernels"]) == kernels


def test_what_lies_beside_both_is_the_packed_ones_if_they_are_equal_else_it_is_told(tmp_path):
    with half_written(tmp_path, "nsys_sqlite", "wal") as (path, kernels):
        packed = path.with_name(path.name + ".gz")
        packed.write_bytes(gzip.compress(path.read_bytes()))
        assert len(readers.open(path)["kernels"]) == kernels
        assert len(readers.open(packed)["kernels"]) == kernels
        # packed before, or another's
        packed.write_bytes(gzip.compress(path.read_bytes() + bytes(4096)))
        trace = readers.open(packed)
        assert len(trace["kernels"]) < kernels
        assert trace["notes"]["what"].str.contains("records may be missing").any()


def test_so_is_it_in_a_folder_and_in_an_archive(tmp_path):
    with half_written(tmp_path, "nsys_sqlite", "wal") as (path, kernels):
        folder = tmp_path / "folder"
        folder.mkdir()
        for file in tmp_path.glob("killed*"):
            shutil.copy(file, folder)
        archive = tmp_path / "run.zip"
        with zipfile.ZipFile(archive, "w") as packed:
            for file in folder.iterdir():
                packed.write(file, file.name)
        for place in (
            folder,
            archive,
            f"{archive}!{path.name}",
        ):
            assert len(readers.open(place)["kernels"]) == kernels, place


def test_an_empty_log_is_no_matter(tmp_path):
    path = seeds.nsys_sqlite(tmp_path / "a.sqlite")
    before = readers.open(path)
    path.with_name("a.sqlite-wal").touch()
    path.with_name("a.sqlite-journal").write_bytes(
        bytes(512)
    )  # as PRAGMA journal_mode=PERSIST leaves it
    after = readers.open(path)
    assert len(after["kernels"]) == len(before["kernels"])
    assert not after["notes"]["what"].str.contains("writer").any()


def test_a_log_of_another_database_is_not_taken_in(tmp_path):
    with half_written(tmp_path, "nsys_sqlite", "wal") as (path, _):
        other = seeds.nvprof(tmp_path / "other.sqlite")
        log = bytearray(path.with_name(path.name + "-wal").read_bytes())
        log[-1] ^= 1
        other.with_name("other.sqlite-wal").write_bytes(log[:32] + bytes(100))
        trace = readers.open(other)
    assert "has no whole transaction" in trace["notes"]["what"][0]


def test_one_that_is_too_large_to_copy_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("opscope.readers.unfinished.LARGEST", 1000)
    refused = pytest.raises(BadInput, match=r"its writer did not finish: .*-wal belongs to it")
    with half_written(tmp_path, "nvprof", "wal") as (path, _), refused:
        readers.open(path)


def test_a_journal_that_names_another_file_is_refused(tmp_path):
    with half_written(tmp_path, "nvprof", "delete") as (path, _):
        journal = path.with_name(path.name + "-journal")
        journal.write_bytes(journal.read_bytes() + b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7")
        with pytest.raises(BadInput, match="shared by several databases"):
            readers.open(path)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for another process's lock")
def test_one_that_is_still_being_written_is_told_as_such(tmp_path):
    path = seeds.nvprof(tmp_path / "a.sqlite")
    code = (
        "import sqlite3, sys\n"
        "database = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "database.execute('PRAGMA journal_mode = off')\n"
        "database.execute('BEGIN IMMEDIATE')\n"
        "print(flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        writer.stdout.readline()
        with pytest.raises(BadInput, match="a process is still writing it"):
            opscope.load(path)
        writer.communicate(b"\n")
    assert len(opscope.load(path).kernels())
