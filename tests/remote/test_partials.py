"""Partials in stores: written by workers, merged where they lie, and what goes wrong on the way."""

from __future__ import annotations

import pytest

import opscope
from opscope.errors import BadInput, EngineError
from opscope.remote import stores
from opscope.scale.engines import read_ranks
from opscope.scale.merge import merge
from opscope.scale.partial import write_partial
from opscope.scale.pool import ProcessPool
from tests.made_ranks import rank_files

FRAMES = ("summary", "op_totals", "kernel_totals", "communication", "collectives")


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr(stores, "_PAUSE", 0.0)


@pytest.fixture
def files(tmp_path):
    return rank_files(tmp_path, 4)


def same(one, other) -> bool:
    return all(getattr(one, name)().equals(getattr(other, name)()) for name in FRAMES)


def test_ranks_and_partials_in_a_store_give_what_the_disk_gives(store, files):
    for one in files:
        store.put(f"run/{one.name}", one)
    parts, pattern = store.url("parts"), store.url("run/rank*.json")
    on_disk = opscope.load(files)
    with ProcessPool(2) as pool:
        assert same(opscope.load(pattern, executor=pool, parts=parts), on_disk)
        again = read_ranks([store.url(f"run/{one.name}") for one in files], parts, pool)
        assert (again.read, again.kept) == (0, 4)
    assert len([one for one in store.names() if one.startswith("parts/")]) == 4
    merged = merge(parts)
    assert same(merged, on_disk)
    merged.save(store.url("job.opscope"))
    assert same(opscope.load(store.url("job.opscope")), on_disk)


def test_small_objects_share_a_task(store, files, monkeypatch):
    from opscope.scale import engines

    tasks = []
    monkeypatch.setattr(engines, "read_batch", lambda task, *rest: tasks.append(task) or [])
    read_ranks([store.put(f"run/{one.name}", one) for one in files], store.url("parts"))
    assert list(map(len, tasks)) == [4]


def test_an_object_that_is_another_one_now_is_read_again(store, files):
    url = store.put("run/rank0.json", files[0])
    parts = store.url("parts")
    assert read_ranks([url], parts).read == 1
    store.put("run/rank0.json", files[0].read_bytes() + b"\n")
    assert read_ranks([url], parts).read == 1
    assert read_ranks([url], parts).kept == 1


def test_an_object_that_is_replaced_while_it_is_read_gets_no_partial(store, files, monkeypatch):
    url = store.put("run/rank0.json", files[0])
    whole = opscope.profile.load

    def replaced(*given, **more):
        profile = whole(*given, **more)
        store.put("run/rank0.json", files[1])
        return profile

    monkeypatch.setattr("opscope.scale.partial.load", replaced)
    mapped = read_ranks([url], store.url("parts"))
    assert mapped.names == {}
    assert mapped.failed[url].startswith("was replaced while it was read")
    assert not [one for one in store.names() if one.endswith(".parquet")]


def test_a_partial_whose_upload_never_ended_is_made_again(store, files):
    url, parts = store.put("run/rank0.json", files[0]), store.url("parts")
    [name] = read_ranks([url], parts).names.values()
    store.fs().rm_file(f"{parts}/{name}")
    half = store.fs().open(f"{parts}/{name}", "wb", block_size=5 << 20)
    half.write(b" " * (6 << 20))
    half.flush()
    assert read_ranks([url], parts).read == 1
    half.closed = True  # it would end the upload when it is collected


def test_a_partial_that_was_cut_is_named(store, files):
    urls = [store.put(f"run/{one.name}", one) for one in files[:2]]
    parts = store.url("parts")
    names = read_ranks(urls, parts).names
    cut = f"parts/{names[urls[1]]}"
    store.put(cut, store.fs().cat_file(store.url(cut))[:-1000])
    merged = merge(parts)
    assert [one["path"] for one in merged.manifest["failed"]] == [store.url(cut)]
    with pytest.raises(BadInput) as told:
        merge(parts, strict=True)
    assert told.value.path == store.url(cut)


def test_a_missing_bucket_of_partials_is_told_once_and_blames_no_rank(store, files):
    if store.name == "seaweedfs":
        pytest.skip("this server makes the bucket for its administrator")
    parts = store.base.replace("bucket", "nowhere") + "/parts"
    with pytest.raises((BadInput, EngineError), match="no such") as told:
        read_ranks(files, parts)
    assert "nowhere" in str(told.value)


def test_rights_that_lack_for_partials_are_told_once_and_blame_no_rank(store, files, monkeypatch):
    if store.name != "seaweedfs":
        pytest.skip("of the servers for tests only this one knows rights of a bucket")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "blind")
    type(store.fs()).clear_instance_cache()
    with pytest.raises((BadInput, EngineError), match=r"access denied|credentials were refused"):
        read_ranks(files, store.url("parts"))
    with pytest.raises(BadInput, match=r"access denied|credentials were refused"):
        merge(store.url("parts"))
    with pytest.raises(BadInput, match=r"access denied|credentials were refused"):
        write_partial(files[0], store.url("parts"))
    monkeypatch.undo()


def test_no_message_and_no_partial_holds_a_credential(store, files, tmp_path):
    url, parts = store.put("run/rank0.json", files[0]), store.url("parts")
    [name] = read_ranks([url], parts).names.values()
    held = store.fs().cat_file(f"{parts}/{name}")
    for word in (b"hidden-word", b"Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq"):
        assert word not in held
