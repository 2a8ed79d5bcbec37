"""A shared profile is read once, given up for memory, and a test that changes one is named."""

from __future__ import annotations

import polars as pl
import pytest

from tests.traces import Shelf

FILE = "kineto/alexnet_cuda_sync_a100.json.gz"
OTHER = "kineto/resnet50_nw4_step_span1.pt.trace.json.gz"


def test_a_trace_is_read_once_for_each_way_of_reading_it(shared):
    shelf = Shelf()
    first = shelf.load(shared / FILE)
    assert shelf.load(shared / FILE) is first
    assert shelf.load(shared / FILE, lean=True) is not first
    shelf.check()


def test_those_used_longest_ago_go_for_memory(shared):
    shelf = Shelf(most=0)
    first = shelf.load(shared / FILE)
    shelf.load(shared / OTHER)
    assert shelf.load(shared / FILE) is not first


@pytest.mark.parametrize(
    "ask", [lambda p: p.trace["kernels"], lambda p: p.ask("kernels", categories=True)]
)
def test_who_changes_a_frame_is_told(shared, ask):
    shelf = Shelf()
    profile = shelf.load(shared / FILE)
    frame = ask(profile)
    shelf.check()
    frame.replace_column(frame.get_column_index("start"), frame["start"] + 1)
    with pytest.raises(AssertionError, match="test_who_changes_a_frame_is_told"):
        shelf.check()


def test_who_changes_the_order_of_rows_or_replaces_a_table_is_told(shared):
    for change in (lambda t: t.reverse(), lambda t: t.with_columns(pl.col("end") + 1)):
        shelf = Shelf()
        profile = shelf.load(shared / FILE)
        profile.trace.tables["kernels"] = change(profile.trace["kernels"])
        with pytest.raises(AssertionError, match="the table kernels"):
            shelf.check()
