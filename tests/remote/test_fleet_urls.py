"""A fleet in a bucket: runs appear whole or not at all, and another program's query finds them."""

from __future__ import annotations

import io
from datetime import date

import polars as pl
import pytest

import opscope
from opscope.errors import BadInput
from opscope.scale import fleet
from tests.made_ranks import rank_files

DAY = date(2026, 5, 4)


def test_a_run_in_a_bucket_is_the_one_on_disk(store, tmp_path):
    profile = opscope.load(rank_files(tmp_path)[0])
    here = fleet.add(profile, tmp_path / "fleet", job="train", day=DAY)
    there = fleet.add(profile, store.url("fleet"), job="train", day=DAY)
    assert there.new
    assert not fleet.add(profile, store.url("fleet"), job="train", day=DAY).new
    for table in ("jobs", "ops", "advice"):
        held = store.fs().cat_file(f"{there.path}/{table}.parquet")
        assert pl.read_parquet(io.BytesIO(held)).equals(
            pl.read_parquet(f"{here.path}/{table}.parquet")
        )


def test_a_run_that_a_store_refuses_leaves_nothing(store, tmp_path, monkeypatch):
    profile = opscope.load(rank_files(tmp_path)[0])
    asked = []

    def third_fails(put):
        async def put_file(self, *given, **how):
            asked.append(given)
            if len(asked) == 3:
                raise PermissionError("denied")
            return await put(self, *given, **how)

        return put_file

    store.patch(monkeypatch, "put_file", third_fails)
    with pytest.raises(BadInput):
        fleet.add(profile, store.url("fleet"), job="train", day=DAY)
    assert len(asked) == 3
    assert store.names() == []
