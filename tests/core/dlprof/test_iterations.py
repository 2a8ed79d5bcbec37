"""DLProf's iterations: N stops of a key node cut a profile into N + 1 intervals, and none leaves it whole."""

from __future__ import annotations

import csv

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.steps.key_ops import stop_times
from opscope.core.attribution.attribute import attribute
from opscope.core.dlprof.iterations import BadIterationRange, assign, iterations
from opscope.core.schema import UNCLOSED
from tests import traces


def ops(texts: list[str], process: int = 0, thread: int = 1, shift: int = 0) -> list[dict]:
    """A range of 10 ns for each text, one every 20 ns."""
    return [
        {"process": process, "thread": thread, "start": shift + 20 * n, "end": shift + 20 * n + 10,
         "domain": "opscope.x", "category": "forward", "kind": "pushpop", "text": text}
        for n, text in enumerate(texts)
    ]  # fmt: skip


def found(trace, **options):
    attribution = attribute(trace)
    return iterations(attribution.trace, attribution, **options)


STEP = ["x::a()", "x::b()", "x::key()"]


def test_each_stop_of_the_key_node_begins_another_interval(trace_of):
    made = found(trace_of(ranges=ops([*STEP * 3, "x::tail()"])), key="x::key")
    assert made.found
    assert made.key == "x::key"
    assert made.table.select("iteration", "begin", "end", "aggregated").rows() == [
        (0, 0, 49, True), (1, 50, 109, True), (2, 110, 169, True), (3, 170, 190, True),
    ]  # fmt: skip


def test_only_the_iterations_from_start_to_stop_are_aggregated(trace_of):
    made = found(trace_of(ranges=ops(STEP * 4)), key="x::key", start=1, stop=2)
    assert made.table["aggregated"].to_list() == [False, True, True, False, False]


@pytest.mark.parametrize(("start", "stop"), [(9, None), (2, 1), (None, -1)])
def test_a_range_without_an_iteration_says_which_there_are(trace_of, start, stop):
    with pytest.raises(BadIterationRange, match="the profile has iterations 0 to 4"):
        found(trace_of(ranges=ops(STEP * 4)), key="x::key", start=start, stop=stop)


def test_without_a_key_node_the_profile_is_one_iteration(trace_of):
    trace = trace_of(ranges=ops(STEP * 4))
    for key, why in (("x::other", "key node x::other not found"), (None, "no key node given")):
        made = found(trace, key=key)
        assert (made.found, made.key) == (False, None)
        assert made.reason.startswith(why)
        assert made.table.rows() == [(0, None, 0, 230, True)]


def test_steps_that_opscope_infers_are_no_key_node_of_dlprof(trace_of):
    """DLProf itself found no iteration in such a profile."""
    rows = []
    for step in range(5):
        for n, kind in enumerate(("forward", "backward", "optimizer")):
            (row,) = ops([f"x::{kind}()"], shift=100 * step + 20 * n)
            seq = {"seq": step, "fwd_thread": 1} if kind != "optimizer" else {}
            rows.append({**row, "category": kind, **seq})
    trace = trace_of(ranges=rows)
    attribution = attribute(trace)
    assert (attribution.trace["ranges"]["category"] == "step").sum() == 5
    assert not iterations(attribution.trace, attribution).found


def test_steps_that_the_program_marks_are_iterations(trace_of):
    step = [
        {"process": 0, "thread": 1, "start": 60 * n, "end": 60 * n + 55, "domain": "opscope.step",
         "category": "step", "kind": "pushpop", "text": f"step {n}"} for n in range(3)
    ]  # fmt: skip
    made = found(trace_of(ranges=ops(STEP * 3) + step))
    assert made.key == "step"
    assert made.table["end"].to_list() == [54, 114, 174, 175]


def test_the_counter_of_tensorflow_is_the_default_and_its_last_write_ends_an_iteration(trace_of):
    one = ["x::a()", *(f'x::op() {{node="train/global_step{last}"}}' for last in ("/read", "/add"))]
    made = found(trace_of(ranges=ops(one * 3)))
    assert made.key == "train/global_step/add"
    assert made.table["end"].to_list() == [49, 109, 169, 170]


def test_on_several_gpus_an_iteration_ends_when_the_last_of_them_ends_it(trace_of):
    rows = ops(STEP * 3) + ops(STEP * 3, process=1, shift=7)
    made = found(trace_of(ranges=rows), key="x::key")
    assert made.table["end"].to_list() == [56, 116, 176, 177]


def test_gpus_with_unequal_numbers_of_instances_begin_an_iteration_with_each():
    gpu, end = np.array([0, 1, 0, 1, 0, 0]), np.array([10, 15, 20, 35, 30, 40])
    assert stop_times(gpu, end).tolist() == [10, 15, 20, 30, 35, 40]
    assert stop_times(np.zeros(6, int), end).tolist() == [10, 15, 20, 30, 35, 40]
    assert stop_times(gpu[:4], end[:4]).tolist() == [15, 35]


@given(st.integers(1, 4), st.integers(1, 9), st.lists(st.integers(0, 9), min_size=36, max_size=36))
def test_equal_gpus_have_as_many_iterations_as_each_has_instances(gpus, many, late):
    at = np.arange(many) * 100
    gpu = np.repeat(np.arange(gpus), many)
    end = np.tile(at, gpus) + np.array(late[: gpus * many])
    stops = stop_times(gpu, end)
    assert len(stops) == many
    assert (stops == end.reshape(gpus, many).max(axis=0)).all()


def test_an_event_belongs_to_the_iteration_in_which_it_begins(trace_of):
    made = found(trace_of(ranges=ops(STEP * 2)), key="x::key")
    time = pl.Series([0, 49, 50, 109, None, 110, 111, -5])
    assert assign(made, pl.Series([0] * 8), time).to_list() == [0, 0, 1, 1, None, 2, None, None]


@pytest.mark.parametrize("name", ["nsys_profile.sqlite", "dlprof_dldb.sqlite"])
def test_a_profile_of_dlprofs_has_the_iteration_of_its_summary(shared, name):
    attribution = traces.load(shared / "dlprof" / name).attribution
    made = iterations(attribution.trace, attribution)
    with open(shared / "dlprof/dlprof_summary.csv", newline="") as text:
        told = {row[0]: row[1] for row in csv.reader(text) if len(row) == 2}
    assert str(len(made.table)) == told["Total Iterations"]
    assert str(made.table["aggregated"].sum()) == told["Aggregated Iterations"]
    (row,) = made.table.rows(named=True)
    assert str(row["end"] - row["begin"]) == told["Wall Clock Time (ns)"]
    for table in ("kernels", "memops", "calls"):
        times = attribution.trace[table]
        assert assign(made, times["process"], times["start"]).to_list() == [0] * len(times)


def test_a_step_that_does_not_end_cuts_nothing(trace_of):
    steps = [
        {"process": 0, "thread": 1, "start": 100 * n, "end": 100 * n + 90, "domain": "opscope.step",
         "category": "step", "kind": "pushpop", "text": f"step {n}", "attrs": attrs}
        for n, attrs in enumerate((None, None, UNCLOSED))
    ]  # fmt: skip
    made = found(trace_of(ranges=steps))
    assert made.key == "step"
    assert made.table["end"].to_list() == [89, 189, 290]


def test_a_key_op_that_the_captures_end_cuts_is_no_stop(trace_of):
    ranges = [{**one, "attrs": None} for one in ops(STEP * 2)]
    ranges[-1]["attrs"] = UNCLOSED
    made = found(trace_of(ranges=ranges), key="x::key")
    assert made.table["end"].to_list() == [49, 110]
