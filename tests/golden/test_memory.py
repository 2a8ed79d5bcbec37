"""Memory in a real Kineto trace: PyTorch's own totals hold, and the peak is made of blocks."""

from __future__ import annotations

import polars as pl
import pytest

import opscope


@pytest.fixture(scope="module")
def profile(shared):
    return opscope.load(shared / "kineto" / "ddp_memory_v100.json.gz")


def test_each_change_is_what_the_total_grew_by(profile):
    changes = profile.trace["allocations"].sort("device", "time", maintain_order=True)
    grown = changes.select(
        (pl.col("total").diff().over("device") == pl.col("bytes")).alias("same")
    )["same"].drop_nulls()
    assert len(grown) == 28_010 - 2
    assert grown.all()


def test_allocated_less_released_is_what_the_total_grew_by(profile):
    rows = profile.memory().to_dicts()
    assert [(r["device"], r["allocations"], r["allocated"] - r["released"]) for r in rows] == [
        (-1, 620, 0),
        (1, 13_385, 0),
    ]
    gpu = rows[1]
    assert (gpu["peak_memory"], gpu["reserved"]) == (6_629_508_096, 12_782_141_440)


def test_the_peak_is_made_of_what_ops_held_and_what_was_there(profile):
    by_op = profile.memory_by_op().filter(pl.col("device") == 1)
    assert by_op["at_peak"].sum() == 6_629_508_096
    before = by_op.filter(pl.col("reason").is_not_null())
    assert before["reason"].to_list() == ["in use before the first event"]
    # the trace begins and ends between two steps, with the same in use
    assert before["at_peak"].item() == profile.memory()["in_use"][1]
    assert (by_op["at_peak"] >= 0).all()
    mm = by_op.filter((pl.col("op").cast(pl.String) == "aten::mm") & (pl.col("at_peak") > 0))
    assert set(mm["direction"].cast(pl.String)) == {"backward"}  # gradients
