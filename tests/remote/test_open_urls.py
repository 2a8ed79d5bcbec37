"""Traces and profiles in object stores give what the same files on disk give; failures are told in words."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing

import pytest

import opscope
from opscope.errors import BadInput, NotReached
from opscope.readers import at_urls
from tests.made_ranks import rank_files


@pytest.fixture
def ranks(tmp_path):
    """Small Kineto files of two ranks."""
    return rank_files(tmp_path)


def _equal(one, other):
    assert one.summary().equals(other.summary())
    assert one.op_totals().equals(other.op_totals())


def test_files_patterns_folders_and_lists_give_what_the_disk_gives(store, ranks):
    urls = [store.put(f"run/{one.name}", one) for one in ranks]
    store.put("run/log.txt", b"no trace")
    store.put("run/empty", b"")
    on_disk = opscope.load(ranks)
    _equal(opscope.load(urls), on_disk)
    _equal(opscope.load(store.url("run/rank*.json")), on_disk)
    _equal(opscope.load(store.url("run")), on_disk)
    _equal(opscope.load(store.url("run/")), on_disk)
    one = opscope.load(urls[0])
    _equal(one, opscope.load(ranks[0]))
    assert one.trace.origin["paths"] == [urls[0]]
    [source] = one.trace.origin["sources"]
    assert source["url"] == urls[0]
    assert source["size"] == ranks[0].stat().st_size
    assert source["version"]


def test_what_a_database_s_writer_left_beside_it_is_copied_too(web, tmp_path):
    folder, url = web
    path = folder / "a.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = wal")
        database.execute("CREATE TABLE made (number)")
        for name in ("a.sqlite", "a.sqlite-wal"):
            shutil.copy(folder / name, tmp_path)
    (tmp_path / "a.sqlite").replace(path)
    (tmp_path / "a.sqlite-wal").replace(folder / "a.sqlite-wal")
    with at_urls.at_hand(f"{url}/a.sqlite") as copy:
        assert {file.name for file in copy.parent.iterdir()} == {"a.sqlite", "a.sqlite-wal"}
    (folder / "a.sqlite-wal").unlink()
    with at_urls.at_hand(f"{url}/a.sqlite") as copy:
        assert [file.name for file in copy.parent.iterdir()] == ["a.sqlite"]


def test_local_patterns_are_expanded_in_natural_order(tmp_path):
    files = rank_files(tmp_path, 11)
    profile = opscope.load(tmp_path / "rank*.json")
    _equal(profile, opscope.load(files))
    with pytest.raises(BadInput, match="matches nothing"):
        opscope.load(str(tmp_path / "x*.json"))


def test_of_a_profile_at_a_url_no_result_is_kept(store, ranks):
    url = store.url("kept/run.opscope")
    opscope.load(ranks).save(url)
    before = store.names()
    profile = opscope.load(url)
    _equal(profile, opscope.load(ranks))
    assert store.names() == before
    assert not profile._kept


def test_no_copy_stays_in_scratch(store, ranks, tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    url = store.put("a.json", ranks[0])
    opscope.load(url).summary()
    store.put("bad.json", b'{"traceEvents": [')
    with pytest.raises(BadInput):
        opscope.load(store.url("bad.json"))
    assert list(scratch.iterdir()) == []


def test_a_profile_is_saved_to_a_url_and_read_again(store, ranks, tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    profile = opscope.load(ranks)
    url = store.url("out/run.opscope")
    profile.save(url)
    assert "out/run.opscope/meta.json" in store.names()
    again = opscope.load(url)
    _equal(again, profile)
    assert repr(again).endswith(f"from {url}>")
    with pytest.raises(FileExistsError):
        profile.save(url)
    store.put("out/run.opscope/old.parquet", b"x")
    profile.save(url, force=True)
    assert "out/run.opscope/old.parquet" not in store.names()
    _equal(opscope.load(url), profile)
    del again
    import gc

    gc.collect()
    assert list(scratch.iterdir()) == []


def test_a_save_that_fails_leaves_no_profile(store, ranks, monkeypatch):
    profile = opscope.load(ranks)
    count = [0]

    def failing(whole):
        async def put(self, *args, **kwargs):
            count[0] += 1
            if count[0] > 3:
                raise PermissionError("AccessDenied Signature=abcdef")
            return await whole(self, *args, **kwargs)

        return put

    store.patch(monkeypatch, "put_file", failing)
    with pytest.raises(NotReached, match="access denied") as told:
        profile.save(store.url("run.opscope"))
    assert "abcdef" not in str(told.value)
    assert store.names() == []


def test_a_folder_that_is_no_profile_is_not_replaced(store, ranks):
    store.put("data/x.txt", b"mine")
    with pytest.raises(FileExistsError, match="not a profile"):
        opscope.load(ranks).save(store.url("data"), force=True)
    assert store.names() == ["data/x.txt"]


@pytest.mark.parametrize(
    ("path", "words"),
    [("nope.json", "no such file"), ("no*.json", "matches nothing"), ("log.txt", "not a trace")],
)
def test_what_is_not_there_is_told(store, path, words):
    store.put("log.txt", b"no trace")
    with pytest.raises(BadInput, match=words) as told:
        opscope.load(store.url(path))
    assert told.value.path == store.url(path)


def test_a_missing_bucket_is_told(store):
    with pytest.raises(BadInput, match="no such"):
        opscope.load(store.base.replace("bucket", "nowhere") + "/a.json")


def test_a_file_that_cannot_be_read_is_left_out_and_named(store, ranks):
    url = store.put("rank0.json", ranks[0])
    cut = store.put("rank1.json", ranks[1].read_bytes()[:-40])
    profile = opscope.load([url, cut, store.url("rank2.json")])
    assert [one["path"] for one in profile.trace.origin["failed"]] == [cut, store.url("rank2.json")]
    assert profile.summary()["files"].item() == 3
    assert "/tmp" not in str(profile.notes().to_dicts())
    with pytest.raises(BadInput):
        opscope.load([url, cut], strict=True)


def test_one_file_twice_is_refused(store, ranks):
    url = store.put("rank0.json", ranks[0])
    with pytest.raises(BadInput, match="twice"):
        opscope.load([url, url])


def test_an_object_that_is_replaced_while_it_is_read_is_read_again(store, ranks, monkeypatch):
    url = store.put("a.json", ranks[0])
    left = [1]

    def replacing(whole):
        async def get(self, *args, **kwargs):
            result = await whole(self, *args, **kwargs)
            if left[0]:
                left[0] -= 1
                content = ranks[1].read_bytes() + b" " * left[0]
                await self._pipe_file(self._strip_protocol(url), content)
            return result

        return get

    store.patch(monkeypatch, "get_file", replacing)
    _equal(opscope.load(url), opscope.load(ranks[1]))
    left[0] = 5
    with pytest.raises(BadInput, match="was replaced while it was read, twice"):
        opscope.load(url)


def test_a_broken_connection_is_tried_again(store, ranks, monkeypatch):
    from opscope.remote import stores

    monkeypatch.setattr(stores, "_PAUSE", 0.0)
    url = store.put("a.json", ranks[0])
    left = [2]

    def breaking(whole):
        async def get(self, *args, **kwargs):
            if left[0]:
                left[0] -= 1
                raise ConnectionResetError("reset by peer")
            return await whole(self, *args, **kwargs)

        return get

    store.patch(monkeypatch, "get_file", breaking)
    _equal(opscope.load(url), opscope.load(ranks[0]))
    left[0] = 9
    with pytest.raises(BadInput, match=r"cannot be reached.*3 tries"):
        opscope.load(url)


def test_an_object_that_arrives_incomplete_is_told(store, ranks, monkeypatch):
    url = store.put("a.json", ranks[0])

    def cutting(whole):
        async def get(self, far, near, *args, **kwargs):
            result = await whole(self, far, near, *args, **kwargs)
            os.truncate(near, 100)
            return result

        return get

    store.patch(monkeypatch, "get_file", cutting)
    with pytest.raises(BadInput, match="arrived incomplete: 100 of"):
        opscope.load(url)


def test_credentials_are_in_no_message_and_no_profile(store, ranks, tmp_path, monkeypatch):
    for name in ("AWS_SECRET_ACCESS_KEY",):
        monkeypatch.setenv(name, "hidden-word-2")
    url = store.put("a.json", ranks[0])
    profile = opscope.load(url)
    profile.save(tmp_path / "a.opscope")
    text = b"".join(
        one.read_bytes() for one in (tmp_path / "a.opscope").rglob("*") if one.is_file()
    )
    for value in store.env.values():
        if len(value) > 8 and "http" not in value:
            assert value.encode() not in text


def test_a_file_of_a_web_server_is_read(web, ranks):
    folder, url = web
    (folder / "a.json").write_bytes(ranks[0].read_bytes())
    profile = opscope.load(f"{url}/a.json?sig=hidden")
    _equal(profile, opscope.load(ranks[0]))
    assert profile.trace.origin["paths"] == [f"{url}/a.json"]
    with pytest.raises(BadInput, match="no such file") as told:
        opscope.load(f"{url}/b.json?sig=hidden")
    assert "hidden" not in str(told.value)
    with pytest.raises(NotReached, match="takes no files"):
        profile.save(f"{url}/x.opscope")


def test_a_server_that_is_not_there_is_told(monkeypatch):
    pytest.importorskip("aiohttp", reason="aiohttp is not installed: pip install 'opscope[cloud]'")
    from opscope.remote import stores

    monkeypatch.setattr(stores, "_PAUSE", 0.0)
    with pytest.raises(BadInput, match="cannot be reached"):
        opscope.load("http://127.0.0.1:9/a.json")


def test_copying_is_told_as_it_goes_and_may_be_ended(store, ranks):
    url = store.put("a.json", ranks[0])
    told = []
    opscope.load(url, progress=lambda *one: told.append(one))
    size = ranks[0].stat().st_size
    assert ("copying a.json", 0, size) in told
    assert ("copying a.json", size, size) in told
    assert any(name.startswith("reading a.json") for name, _, _ in told)

    def ends(name, done, total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opscope.load(url, progress=ends)


def test_a_local_file_imports_nothing_of_clouds(tmp_path):
    [rank] = rank_files(tmp_path, 1)
    for name in ("fsspec", "aiohttp", "s3fs", "gcsfs", "adlfs"):
        (tmp_path / f"{name}.py").write_text("raise AssertionError('it was imported')")
    text = (
        "import sys, opscope; p = opscope.load(sys.argv[1]); p.summary(); p.save('a.opscope');"
        " opscope.load('a.opscope').op_totals(); opscope.load(['rank0.json']); opscope.load('rank*.json');"
        " assert 'fsspec' not in sys.modules"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path[1:]))}
    subprocess.run([sys.executable, "-c", text, str(rank)], cwd=tmp_path, env=env, check=True)


def test_without_fsspec_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(BadInput, match=r"pip install 'opscope\[cloud\]'"):
        opscope.load("s3://bucket/a.json")
