"""Partials of traces in a bucket, written into the bucket, merged there; whole or not at all."""

from __future__ import annotations

import pytest

from opscope.errors import BadInput
from opscope.scale.identity import identity_of
from opscope.scale.merge import merge
from opscope.scale.partial import partial_name, sources, write_partial
from tests.made_ranks import rank_files
from tests.merged_same import assert_same


@pytest.fixture
def ranks(store, tmp_path):
    files = rank_files(tmp_path, 3)
    for one in files:
        store.put(one.name, one)
    return files


def test_partials_and_the_profile_lie_in_the_bucket(store, ranks):
    urls = sources([store.url("rank*.json")])
    assert urls == [store.url(one.name) for one in ranks]
    names = [write_partial(url, store.url("parts")) for url in urls]
    assert names == [partial_name(url) for url in urls]
    assert [f"parts/{name}" for name in sorted(names)] == [
        one for one in store.names() if one.startswith("parts/")
    ]
    merged = merge(store.url("parts"))
    assert_same(merged, ranks)
    merged.save(store.url("job.opscope"))
    import opscope

    assert opscope.load(store.url("job.opscope")).merged_of == "3 of 3 ranks"


def test_an_object_that_was_replaced_has_another_name(store, ranks):
    url = store.url("rank0.json")
    first = partial_name(url)
    store.put("rank0.json", ranks[1])
    assert partial_name(url) != first


def test_credentials_are_in_no_identity(store, ranks, monkeypatch):
    told = identity_of(store.url("rank0.json"))
    assert told.place == store.url("rank0.json")
    assert told.size == ranks[0].stat().st_size


def test_a_partial_that_is_there_is_not_read_again(store, ranks, monkeypatch):
    url = store.url("rank0.json")
    name = write_partial(url, store.url("parts"))
    monkeypatch.setattr(
        "opscope.scale.partial.load", lambda *_, **__: pytest.fail("it was read again")
    )
    assert write_partial(url, store.url("parts")) == name


def test_a_bucket_that_is_not_there_is_one_line(store, ranks):
    lacking = store.base.replace(store.base.rpartition("/")[2], "no-such-bucket")
    with pytest.raises(BadInput):
        merge(f"{lacking}/parts")
