"""A trace in an archive, packed twice, in UTF-16, in several arrays, or cut off: its rows are those of the file."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sqlite3
import sys
import tarfile
import tempfile
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import opscope
from opscope import readers
from opscope.readers import BadInput, unpacking
from opscope.scale.partial import sources

zstd = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def event(number: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": f"aten::op{number}",
        "pid": 7,
        "tid": 8,
        "ts": 10 * number,
        "dur": 5,
    }


EVENTS = [event(number) for number in range(12)]
META = {"schemaVersion": 1, "baseTimeNanoseconds": 1_700_000_000_000_000_000}
JSON = json.dumps({**META, "traceEvents": EVENTS}).encode()
ARRAY = json.dumps(EVENTS).encode()


def tar(files: dict[str, bytes], mode: str = "w") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def old_tar(files: dict[str, bytes]) -> bytes:
    """An archive whose entries lack the mark of POSIX."""
    content = bytearray(tar(files))
    content[257:265] = bytes(8)
    del content[265:345]  # the owner's names
    content[265:265] = bytes(80)
    content[148:156] = b" " * 8
    content[148:156] = b"%06o\0 " % sum(content[:512])
    return bytes(content)


def zipped(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


WHOLE = {
    "zip": ("t.zip", zipped({"t.json": JSON})),
    "zip of gzip": ("t.zip", zipped({"a/b/t.json.gz": gzip.compress(JSON)})),
    "zip beside a log": ("t.zip", zipped({"t.json": JSON, "README": b"words", "__MACOSX/t.json": JSON, ".x": b"{"})),
    "tar": ("t.tar", tar({"t.json": JSON})),
    "tar.gz": ("t.tar.gz", tar({"./run/t.json": JSON}, "w:gz")),
    "tar.xz": ("t.tar.xz", tar({"t.json": JSON}, "w:xz")),
    "tar.bz2": ("t.tar.bz2", tar({"t.json": JSON}, "w:bz2")),
    "tar.zst": ("t.tar.zst", zstd.compress(tar({"t.json": JSON}))),
    "zip in tar": ("t.tar", tar({"t.zip": zipped({"t.json": JSON})})),
    "gzip twice": ("t.json.gz", gzip.compress(gzip.compress(JSON))),
    "gzip three times": ("t.json.gz", gzip.compress(gzip.compress(gzip.compress(JSON)))),
    "gzip in zstd": ("t.json.zst", zstd.compress(gzip.compress(JSON))),
    "xz": ("t.json.xz", lzma.compress(JSON)),
    "bz2": ("t.json.bz2", bz2.compress(JSON)),
    "another name": ("trace.json", zipped({"t": JSON})),
    "UTF-16, little end first": ("t.json", b"\xff\xfe" + JSON.decode().encode("utf-16-le")),
    "UTF-16, big end first": ("t.json", b"\xfe\xff" + JSON.decode().encode("utf-16-be")),
    "UTF-16 without its mark": ("t.json", JSON.decode().encode("utf-16-le")),
    "UTF-16 without its mark, big end first": ("t.json", JSON.decode().encode("utf-16-be")),
    "UTF-16 in gzip": ("t.json.gz", gzip.compress(JSON.decode().encode("utf-16"))),
    "UTF-32": ("t.json", JSON.decode().encode("utf-32")),
    "UTF-8 with a mark": ("t.json", b"\xef\xbb\xbf" + JSON),
    "array with a mark": ("t.json", b"\xef\xbb\xbf" + ARRAY),
    "array without its bracket": ("t.json", ARRAY[:-1]),
    "array without its bracket, with a comma": ("t.json", ARRAY[:-1] + b",\n"),
    "two members of gzip": ("t.json.gz", gzip.compress(JSON[:500]) + gzip.compress(JSON[500:])),
    "arrays": ("t.json", b"".join(json.dumps(EVENTS[at : at + 3]).encode() for at in (0, 3, 6, 9))),
    "arrays on lines": ("t.json", b"\n".join(json.dumps(EVENTS[at : at + 4]).encode() for at in (0, 4, 8))),
    "objects": ("t.json", b"\n".join(json.dumps({**META, "traceEvents": EVENTS[at : at + 6]}).encode() for at in (0, 6))),
    "an array, then an object": ("t.json", json.dumps(EVENTS[:5]).encode() + json.dumps({"traceEvents": EVENTS[5:]}).encode()),
    "two arrays in one object": (
        "t.json",
        b'{"traceEvents": %s, "displayTimeUnit": "ms", "traceEvents": %s}'
        % (json.dumps(EVENTS[:7]).encode(), json.dumps(EVENTS[7:]).encode()),
    ),
    "a line each": ("t.jsonl", b"\r\n".join(json.dumps(one).encode() for one in EVENTS)),
    "several on a line": ("t.jsonl", b"\n".join(json.dumps(one).encode() + json.dumps(two).encode() for one, two in zip(EVENTS[::2], EVENTS[1::2], strict=True))),
    "all on one line": ("t.jsonl", b"".join(json.dumps(one).encode() for one in EVENTS)),
    "an array of arrays": ("t.json", json.dumps([EVENTS[:5], EVENTS[5:]]).encode()),
    "an array of objects": ("t.json", json.dumps([{**META, "parts": [{"id": 0}], "traceEvents": EVENTS[:5]}, {"traceEvents": EVENTS[5:]}]).encode()),
    "tar before POSIX": ("t.tar", old_tar({"t.json": JSON})),
    "a line each, with commas": ("t.jsonl", b",\n".join(json.dumps(one).encode() for one in EVENTS) + b"\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("block", [64, 2 << 20])
def test_every_event_is_read_whatever_it_is_packed_in(tmp_path, name, block, monkeypatch):
    monkeypatch.setattr("opscope.readers.kineto.json_events.BLOCK", block)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", None)
    path = write(tmp_path, *WHOLE[name])
    trace = readers.open(path)
    assert trace["ranges"]["text"].cast(str).to_list() == [one["name"] + "()" for one in EVENTS]
    assert trace["notes"].filter(severity="warning").is_empty()
    assert str(path) in trace.origin["paths"][0]
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("packing", [lambda text: text, gzip.compress, zstd.compress])
def test_of_a_run_that_was_killed_every_whole_event_is_read_and_the_loss_comes_first(
    tmp_path, packing
):
    for text, left in (
        (JSON[:-1], 12),
        (JSON[:-2], 12),
        (JSON[:-20], 11),
        (ARRAY[:-20], 11),
        (ARRAY[:600], 6),
    ):
        path = write(tmp_path, "t.json", packing(text))
        trace = readers.open(path)
        assert len(trace["ranges"]) == left, text[-30:]
        severity, what, _ = trace["notes"].row(0)
        assert severity == "warning"
        assert what.startswith("t.json is cut off (the JSON ends ")


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_packed_file_whose_end_is_lost_is_read_up_to_there(tmp_path, suffix):
    events = [
        {**event(number), "args": {"k": f"{number * 7919 % 10007:x}"}} for number in range(5000)
    ]
    text = json.dumps({**META, "traceEvents": events}).encode()
    packed = gzip.compress(text) if suffix == "gz" else zstd.compress(text)
    trace = readers.open(write(tmp_path, f"t.json.{suffix}", packed[: len(packed) // 2]))
    assert 100 < len(trace["ranges"]) < 4_900
    assert "cut off (truncated " in trace["notes"]["what"][0]
    assert trace.origin["truncated"]
    # twice packed, and in an archive
    trace = readers.open(write(tmp_path, "t.json.gz", gzip.compress(packed)[: len(packed) // 2]))
    assert 100 < len(trace["ranges"]) < 4_900
    assert "t.json.gz is cut off" in trace["notes"]["what"][0]
    archive = tar({"t.json": text}, "w:gz")
    trace = readers.open(write(tmp_path, "t.tar.gz", archive[: len(archive) // 2]))
    assert 100 < len(trace["ranges"]) < 4_900
    assert "t.tar.gz is cut off" in trace["notes"]["what"][0]


def test_ranks_that_are_complete_are_not_joined_with_one_that_is_cut_off(tmp_path):
    paths = []
    for rank in range(3):
        info = {"rank": rank, "world_size": 3}
        own = [event | {"ts": event["ts"] + rank} if "ts" in event else event for event in EVENTS]
        text = json.dumps({"distributedInfo": info, "traceEvents": own})
        paths.append(
            write(tmp_path, f"rank{rank}.json", text.encode()[: -30 if rank == 1 else None])
        )
    trace = readers.open(paths, strict=False)
    assert trace["processes"]["rank"].to_list() == [0, 2]
    assert trace.origin["failed"][0]["path"] == str(paths[1])
    with pytest.raises(BadInput, match=r"rank1\.json: truncated: the JSON ends .*given alone"):
        readers.open(paths)
    for path in paths:
        path.write_bytes(path.read_bytes()[:-40])
    assert len(readers.open(paths)["processes"]) == 3  # the whole job was killed: none is complete


def test_what_stands_behind_the_json_is_counted(tmp_path):
    trace = readers.open(write(tmp_path, "t.json", JSON + b"\nAborted (core dumped)"))
    assert len(trace["ranges"]) == 12
    assert ("warning", "bytes after the end of the JSON were not read", 21) in trace["notes"].rows()


def test_traces_of_two_processes_in_one_file_are_refused(tmp_path):
    both = b"".join(
        json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": EVENTS}).encode()
        for rank in (0, 1)
    )
    with pytest.raises(BadInput, match="several traces in a row, which differ in distributedInfo"):
        readers.open(write(tmp_path, "t.json", both))


# --------------------------------------------------------------------------------- archives


@pytest.mark.parametrize(
    ("name", "make"), [("t.zip", zipped), ("t.tar.gz", lambda files: tar(files, "w:gz"))]
)
def test_several_traces_of_an_archive_are_named_and_one_is_chosen(tmp_path, name, make):
    files = {f"run/rank{rank}.json": json.dumps(EVENTS[: rank + 1]).encode() for rank in range(3)}
    path = write(tmp_path, name, make({**files, "run/log.txt": b"words"}))
    with pytest.raises(
        BadInput, match=r"an archive with 3 traces: run/rank0\.json, run/rank1\.json, run/"
    ) as error:
        readers.open(path)
    assert f"give one as {name}!run/rank0.json" in str(error.value)
    for rank in range(3):
        member = f"{path}!run/rank{rank}.json"
        trace = readers.open(member)
        assert len(trace["ranges"]) == rank + 1
        assert trace.origin["paths"] == [member]
        assert readers.format_of(member) == "containers"
    assert len(readers.open([f"{path}!run/rank1.json", f"{path}!run/rank2.json"])["ranges"]) == 5
    with pytest.raises(BadInput, match=r"has no member run/rank9\.json"):
        readers.open(f"{path}!run/rank9.json")
    with pytest.raises(BadInput, match="no such file"):
        readers.open(f"{path}x!run/rank9.json")


def test_a_folder_that_is_one_trace_is_one_in_an_archive(tmp_path):
    profile = tmp_path / "run.opscope"
    opscope.load(write(tmp_path, "t.json", JSON)).save(profile)
    files = {f"run.opscope/{file.name}": file.read_bytes() for file in profile.iterdir()}
    trace = readers.open(write(tmp_path, "run.zip", zipped(files)))
    assert len(trace["ranges"]) == 12


def test_a_database_that_is_packed_is_read(tmp_path, shared):
    whole = (shared / "nvprof").glob("*.nvvp*")
    path = next((shared / "nsys").glob("*nogpu*.sqlite"), None) or next(whole)
    trace = readers.open(write(tmp_path, f"{path.name}.gz", gzip.compress(path.read_bytes(), 1)))
    assert len(trace["ranges"]) == len(readers.open(path)["ranges"])


def test_a_file_in_an_archive_that_is_no_trace_is_named_in_the_complaint(tmp_path):
    path = write(tmp_path, "t.zip", zipped({"notes/log.txt": b"words"}))
    with pytest.raises(BadInput, match=r"t\.zip!notes/log\.txt: not a trace") as error:
        readers.open(path)
    assert "unpacked" not in str(error.value)
    path = write(tmp_path, "t.zip", zipped({"a.txt": b"words", "b.txt": b"words"}))
    with pytest.raises(
        BadInput, match=r"t\.zip: an archive without a trace: it has a\.txt, b\.txt$"
    ):
        readers.open(path)
    with pytest.raises(BadInput, match="Horovod"):
        readers.open(
            write(
                tmp_path,
                "t.zip",
                zipped({"t.json": b'[{"ph": "B", "name": "NEGOTIATE_ALLREDUCE"}]'}),
            )
        )


@pytest.mark.parametrize(
    "name", ["../t.json", "/t.json", "a/../../t.json", "..\\t.json", "C:\\t.json", "~/../../t"]
)
def test_no_path_leaves_the_archive(tmp_path, name):
    for file, content in (
        ("t.zip", zipped({name: JSON, "kept.json": ARRAY})),
        ("t.tar", tar({name: JSON, "kept.json": ARRAY})),
    ):
        path = write(tmp_path, file, content)
        before = sorted(tmp_path.rglob("*"))
        trace = readers.open(path)
        assert len(trace["ranges"]) == 12
        if ".." in name or name.startswith("/") or ":" in name:
            what = f"entries of the archive {unpacking.LEFT_OUT} were left out"
            assert ("warning", what, 1) in trace["notes"].rows()
        assert sorted(tmp_path.rglob("*")) == before


def test_links_and_devices_of_an_archive_are_left_out(tmp_path):
    secret = write(tmp_path, "secret.json", JSON)
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for kind, name in (
            (tarfile.SYMTYPE, "a.json"),
            (tarfile.LNKTYPE, "b.json"),
            (tarfile.FIFOTYPE, "c.json"),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, str(secret)
            archive.addfile(entry)
        entry = tarfile.TarInfo("t.json")
        entry.size = len(ARRAY)
        archive.addfile(entry, io.BytesIO(ARRAY))
    trace = readers.open(write(tmp_path, "t.tar", made.getvalue()))
    what = f"entries of the archive {unpacking.LEFT_OUT} were left out"
    assert ("warning", what, 3) in trace["notes"].rows()


def test_what_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "FREE", 1 << 20)
    zeros = b"[" + b" " * (40 << 20)
    for name, content in (
        ("t.zip", zipped({"t.json": zeros})),
        ("t.tar.gz", tar({"t.json": zeros}, "w:gz")),
        ("t.json.xz", lzma.compress(zeros)),
        ("t.json.gz", gzip.compress(gzip.compress(zeros))),
    ):
        with pytest.raises(BadInput, match="unpacks to over 200 times its size"):
            readers.open(write(tmp_path, name, content))
    monkeypatch.setattr(unpacking, "LARGEST", 1000)
    for name, content in WHOLE["zip"], WHOLE["tar.gz"], WHOLE["xz"]:
        with pytest.raises(BadInput, match="unpacks to"):
            readers.open(write(tmp_path, name, content))


def test_an_archive_of_too_many_entries_and_too_many_packings_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "ENTRIES", 3)
    files = {f"{number}.txt": b"" for number in range(5)}
    for name, content in (("t.zip", zipped(files)), ("t.tar", tar(files))):
        with pytest.raises(BadInput, match="more than 3"):
            readers.open(write(tmp_path, name, content))
    content = JSON
    for _ in range(9):
        content = gzip.compress(content)
    with pytest.raises(BadInput, match="packed more than 4 times"):
        readers.open(write(tmp_path, "t.json.gz", content))
    content = JSON
    for number in range(9):
        content = zipped({f"{number}.zip": content})
    with pytest.raises(BadInput, match="packed more than 4 times"):
        readers.open(write(tmp_path, "t.zip", content))


def test_a_zip_with_a_password_says_so(tmp_path):
    content = bytearray(zipped({"t.json": JSON}))
    content[6] |= 1  # bit 0 of the flags, in the entry and in the directory
    content[content.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(BadInput, match="password"):
        readers.open(write(tmp_path, "t.zip", bytes(content)))


def test_an_encrypted_entry_beside_the_trace_is_counted(tmp_path):
    content = bytearray(zipped({"secret.txt": b"words", "t.json": JSON}))
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    trace = readers.open(write(tmp_path, "t.zip", bytes(content)))
    assert len(trace["ranges"]) == len(EVENTS)
    assert "encrypted" in notes(trace)


@pytest.mark.parametrize("make", [tar, zipped], ids=["tar", "zip"])
def test_an_archive_without_files_says_so(tmp_path, make):
    with pytest.raises(BadInput, match=r"without a trace: it is empty|zeros or blanks"):
        readers.open(write(tmp_path, "t", make({})))
    with pytest.raises(BadInput, match=r"whose path leaves it.* are left out: 1$"):
        readers.open(write(tmp_path, "t", make({"../t.json": JSON})))


@pytest.mark.parametrize("make", [tar, zipped], ids=["tar", "zip"])
@pytest.mark.parametrize(
    "files", [{"a/t.json": JSON, "a": b"x"}, {"t.json": JSON, "t.json/b": b"x"}]
)
def test_an_entry_whose_path_another_has_is_left_out(tmp_path, make, files):
    trace = readers.open(write(tmp_path, "t", make(files)))
    assert len(trace["ranges"]) == len(EVENTS)
    assert "repeats another" in notes(trace)


def notes(trace: Any) -> str:
    return "\n".join(trace["notes"]["what"])


@pytest.mark.parametrize("first", [True, False])
def test_a_damaged_entry_beside_the_trace_is_no_loss_of_the_trace(tmp_path, first):
    log = {"b.txt": b"the words of a log " * 9}
    content = bytearray(zipped({**log, "t.json": JSON} if first else {"t.json": JSON, **log}))
    content[content.index(b"b.txt") + 8] ^= 0xFF
    trace = readers.open(write(tmp_path, "t.zip", bytes(content)))
    assert len(trace["ranges"]) == len(EVENTS)
    assert "truncated" not in trace.origin
    assert "beside the trace" in notes(trace)


def test_a_damaged_entry_is_not_called_empty(tmp_path):
    content = zipped({"t.json": JSON})
    at = content.index(b"t.json") + 60
    damaged = content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]
    with pytest.raises(BadInput, match=r"t\.zip: cannot be unpacked: t\.json: Error"):
        readers.open(write(tmp_path, "t.zip", damaged))
    with pytest.raises(BadInput, match="list of entries at the end of the zip archive is missing"):
        readers.open(write(tmp_path, "t.zip", content[:150]))
    with pytest.raises(BadInput, match=r"t\.tar: cannot be unpacked: unexpected end"):
        readers.open(write(tmp_path, "t.tar", tar({"t.json": JSON})[:900]))
    for empty in (bytes(9000), b" \n", gzip.compress(bytes(9000))):
        with pytest.raises(BadInput, match="bytes are zeros or blanks"):
            readers.open(write(tmp_path, "t.json", empty))
    with pytest.raises(BadInput, match="the file is empty"):
        readers.open(write(tmp_path, "t.json.gz", gzip.compress(b"")))


# ---------------------------------------------------------------------------------- folders


def test_a_folder_names_the_archives_that_it_does_not_look_into(tmp_path):
    write(tmp_path, "all.zip", zipped({"rank0.json": JSON}))
    with pytest.raises(BadInput, match=r"a folder without traces, but with archives \(all\.zip\)"):
        readers.open(tmp_path)
    with pytest.raises(BadInput, match=r"with archives \(all\.zip\)"):
        sources([tmp_path])
    write(tmp_path, "rank0.json", JSON)
    assert "archives in the folder were not read: all.zip" in notes(readers.open(tmp_path))
    with pytest.raises(BadInput, match="a member of an archive: unpack the archive"):
        sources([f"{tmp_path}/all.zip!rank0.json"])


def test_a_folder_takes_files_packed_twice_and_no_archives(tmp_path):
    write(tmp_path, "rank0.json.gz", gzip.compress(gzip.compress(JSON)))
    write(tmp_path, "rank1.json.xz", lzma.compress(ARRAY))
    write(tmp_path, "all.zip", zipped({"rank0.json": JSON}))
    write(tmp_path, "log.txt", "words".encode("utf-16"))
    write(tmp_path, "bad.xz", lzma.compress(JSON)[:30])
    assert [path.name for path in readers.traces_in(tmp_path)] == ["rank0.json.gz", "rank1.json.xz"]
    assert len(readers.open(tmp_path)["ranges"]) == 24


# ----------------------------------------------------------------------------------- damage


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)
@given(st.sampled_from(sorted(WHOLE)), st.integers(0, 1 << 20), st.integers(0, 255), st.booleans())
def test_a_damaged_file_is_read_in_part_or_refused_in_one_line(tmp_path, name, at, byte, cut):
    file, content = WHOLE[name]
    at %= len(content)
    damaged = content[:at] if cut else content[:at] + bytes([byte]) + content[at + 1 :]
    said, own = "", tmp_path / "temporary"  # others of this machine lay files into the common one
    own.mkdir(exist_ok=True)
    with mock.patch.object(tempfile, "tempdir", str(own)):
        try:
            assert len(readers.open(write(tmp_path, file, damaged))["ranges"]) <= len(EVENTS)
        except BadInput as error:
            said = str(error)
    assert "\n" not in said
    assert "opscope-" not in said
    assert not list(own.iterdir())


def test_the_checks_of_zip_and_gzip_are_made(tmp_path):
    content = bytearray(zipped({"t.json": JSON}))
    content[content.index(b"PK\x01\x02") - 20] ^= 0xFF
    with pytest.raises(BadInput):
        readers.open(write(tmp_path, "t.zip", bytes(content)))


def test_a_database_of_something_else_stays_refused(tmp_path):
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute("create table t (a)")
    connection.close()
    packed = gzip.compress((tmp_path / "t.sqlite").read_bytes())
    with pytest.raises(BadInput, match=r"t\.sqlite\.gz: an SQLite database that is not a trace"):
        readers.open(write(tmp_path, "t.sqlite.gz", packed))
