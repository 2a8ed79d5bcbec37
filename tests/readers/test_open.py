"""Every format is recognised by what is in the file; what is none is refused in one line."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import sys
from importlib import import_module
from pathlib import Path

import polars as pl
import pytest

from opscope import readers
from opscope.readers import BadInput
from opscope.readers.profile import profile_writing

zstd = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
TRACE = {
    "distributedInfo": {"rank": 0, "world_size": 2},
    "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 8, "ts": 1, "dur": 2}
    ],
}


def kineto(path: Path, rank: int = 0) -> Path:
    trace = {**TRACE, "distributedInfo": {"rank": rank, "world_size": 2}}
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return path


def database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("create table t (a)")
    connection.close()


BAD = {
    "missing": (None, "no such file"),
    "empty": (b"", "empty"),
    "binary": (bytes(range(256)) * 20, "not a trace"),
    "text": (b"hello\n", "not a trace"),
    "json": (b'{"a": 1}', "without traceEvents"),
    "array": (b"[1, 2]", "nothing that torch.profiler records"),
    "no-events": (b'{"traceEvents": []}', "nothing that torch.profiler records"),
    "truncated.json": (json.dumps(TRACE).encode()[:-30], "truncated"),
    "truncated.gz": (gzip.compress(bytes(range(256)) + json.dumps(TRACE).encode() * 50)[:-40], "gzip|not a trace"),
    # no text, with the first byte of JSON: an object's, a list's, a space
    **{
        f"binary-{first}": (bytes([first]) + bytes(range(128, 256)) * 4, "JSON")
        for first in b"{[\r"
    },
    "truncated-trace.gz": (gzip.compress(json.dumps(TRACE).encode())[:-99], "truncated gzip"),
    "empty.gz": (gzip.compress(b""), "the file is empty"),
    "truncated-trace.zst": (zstd.compress(json.dumps(TRACE).encode())[:20], "truncated zstd"),
    "damaged.zst": (b"\x28\xb5\x2f\xfd" + b"x" * 50, "zstd"),
    "damaged.sqlite": (b"SQLite format 3\0" + b"x" * 5000, "SQLite"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    content, complaint = BAD[name]
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BadInput, match=complaint) as error:
        readers.open(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)
    assert sorted(tmp_path.iterdir()) == before


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    database(tmp_path / "x.sqlite")
    with pytest.raises(BadInput, match="not a trace of Nsight"):
        readers.open(tmp_path / "x.sqlite")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    path = kineto(tmp_path / "t")
    path.chmod(0)
    with pytest.raises(BadInput, match="Permission"):
        readers.open(path)


def test_extensions_do_not_matter(tmp_path: Path) -> None:
    path = kineto(tmp_path / "trace.sqlite")
    assert readers.format_of(path) == "kineto"
    assert len(readers.open(path)["ranges"]) == 1
    assert len(readers.open(str(path))["ranges"]) == 1


def test_a_folder_is_the_files_of_its_ranks(tmp_path: Path) -> None:
    for rank in (1, 0):
        kineto(tmp_path / f"rank{rank}.json.gz", rank)
    (tmp_path / "README").write_text("not a trace")
    (tmp_path / ".hidden").write_bytes(b"{")
    trace = readers.open(tmp_path)
    assert trace["processes"]["rank"].to_list() == [0, 1]
    assert trace["ranges"]["process"].to_list() == [0, 1]
    listed = readers.open([tmp_path / "rank1.json.gz", tmp_path / "rank0.json.gz"])
    assert listed["processes"]["rank"].to_list() == [1, 0]


def test_a_folder_with_a_damaged_rank_says_which(tmp_path: Path) -> None:
    kineto(tmp_path / "rank0.json.gz")
    whole = kineto(tmp_path / "rank1.json.gz").read_bytes()
    (tmp_path / "rank1.json.gz").write_bytes(whole[:-9])
    with pytest.raises(BadInput, match=r"rank1\.json\.gz: truncated"):
        readers.open(tmp_path)


def test_nothing_to_open(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="without traces"):
        readers.open(tmp_path)
    with pytest.raises(BadInput, match="empty list"):
        readers.open([])


def test_a_profile_is_opened_as_one(tmp_path: Path) -> None:
    trace = readers.open(kineto(tmp_path / "t"))
    profile_writing.write(tmp_path / "p.opscope", trace)
    assert readers.format_of(tmp_path / "p.opscope") == "profile"
    assert readers.open(tmp_path / "p.opscope")["ranges"].equals(trace["ranges"])


@pytest.mark.parametrize("name", ["meta.json", "ranges.parquet"])
def test_a_file_of_a_profile_is_answered_with_its_folder(tmp_path: Path, name: str) -> None:
    profile_writing.write(tmp_path / "run.opscope", readers.open(kineto(tmp_path / "a.json")))
    with pytest.raises(BadInput, match=r"a file inside a profile: open its folder, .*run\.opscope"):
        readers.open(tmp_path / "run.opscope" / name)


def test_a_trace_may_have_the_name_of_a_profiles_file(tmp_path: Path) -> None:
    assert readers.open(kineto(tmp_path / "meta.json"))["ranges"].height == 1


def test_every_real_trace_is_recognised(shared: Path) -> None:
    expected = {"kineto": "kineto", "nsys": "nsys"}
    for folder, reader in expected.items():
        for path in sorted((shared / folder).glob("*.*")):
            assert readers.format_of(path) == reader, path


def test_two_ranks_of_one_job(shared: Path) -> None:
    trace = readers.open([shared / f"kineto/sampled_rank{rank}.json.gz" for rank in (0, 1)])
    assert trace["processes"].select("rank", "world_size").rows() == [(0, 128), (1, 128)]
    counted = trace["kernels"].group_by("process").len().sort("process")
    assert counted.rows() == [(0, 1154), (1, 1104)]
    # each kernel finds its launch in its own process
    joined = trace["kernels"].join(trace["calls"], on=["process", "correlation"], how="semi")
    assert len(joined) == len(trace["kernels"]) == 2258
    assert trace["ranges"]["id"].is_unique().all()
    assert isinstance(trace["ranges"], pl.DataFrame)
