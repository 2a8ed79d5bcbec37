"""How long steps waited for their input: which ranges are waits, whose they are, and what they add up to."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.host.input_waits import (
    ANNOUNCED,
    INPUT_BOUND,
    NO_LOADER,
    NO_STEPS,
    ONE_STEP,
    OTHER_THREAD,
)
from opscope.core.tables.trace import Trace, table_schema
from opscope.profile import Profile


def row(
    domain: str, category: str | None, text: str, start: int, end: int, thread: int = 1, **more
):
    return {"process": 0, "thread": thread, "domain": domain, "category": category, "text": text,
            "start": start, "end": end, "kind": "pushpop", **more}  # fmt: skip


def step(number: int, start: int, end: int, **more):
    return row("opscope.step", "step", f"step {number}", start, end, **more)


def wait(start: int, end: int, loader: str = "DataLoader", ready: int | None = None, **more):
    text = f'{loader}() {{dataset="Images", workers=2, prefetch=4}} @train.py:7'
    return row("opscope.input", "input", text, start, end, payload=ready, **more)


def test_a_step_that_waits_for_more_than_a_twentieth_is_input_bound(trace_of):
    profile = Profile(trace_of(ranges=[
        step(0, 0, 1000), wait(0, 400, ready=0),
        step(1, 1000, 2000), wait(1000, 1050, ready=3),
        step(2, 2000, 3000), wait(2000, 2051, ready=1),
    ]))  # fmt: skip
    waited = profile.input_waits()
    assert waited["input_wait"].to_list() == [400, 50, 51]
    assert waited["share"].to_list() == [0.4, 0.05, 0.051]
    assert waited["input_bound"].to_list() == [True, False, True]
    assert waited["queue_depth"].to_list() == [0, 3, 1]
    assert waited["loader"].to_list() == ["DataLoader of Images"] * 3
    assert waited["reason"].null_count() == 3
    loader = profile.data_preparation().row(0, named=True)
    assert loader["source"] == "train.py:7"
    assert (loader["workers"], loader["prefetch"], loader["empty"]) == (2, 4, 1)
    assert (loader["calls"], loader["total"], loader["steps"], loader["bound_steps"]) == (
        3,
        501,
        3,
        2,
    )


def test_a_slow_loader_is_accused_and_a_fast_one_beside_it_is_not(trace_of):
    rows = []
    for number in range(6):
        start = 1000 * number
        slow = number < 3
        rows += [step(number, start, start + 1000)]
        rows += [wait(start, start + (500 if slow else 20), "Slow" if slow else "Fast")]
    found = Profile(trace_of(ranges=rows)).data_preparation()
    verdicts = dict(found.select("loader", "verdict").rows())
    assert verdicts == {"Slow of Images": "input-bound", "Fast of Images": "not input-bound"}


def test_one_long_wait_alone_accuses_no_loader(trace_of):
    rows = [step(0, 0, 1000), wait(0, 900)]  # the workers start
    rows += [
        one
        for n in range(1, 9)
        for one in (step(n, n * 1000, n * 1000 + 1000), wait(n * 1000, n * 1000 + 9))
    ]
    profile = Profile(trace_of(ranges=rows))
    loader = profile.data_preparation().row(0, named=True)
    assert loader["share"] > INPUT_BOUND
    assert loader["verdict"] == "not input-bound"
    assert profile.input_waits()["input_bound"].to_list() == [True] + [False] * 8


def test_a_wait_between_two_steps_belongs_to_the_later_one_and_to_its_time(trace_of):
    profile = Profile(trace_of(ranges=[
        step(0, 0, 100), wait(100, 150), step(1, 160, 260), wait(260, 270), step(2, 280, 380),
    ]))  # fmt: skip
    waited = profile.input_waits()
    assert waited.select("input_wait", "duration").rows() == [(0, 100), (50, 160), (10, 120)]


def test_the_wait_that_finds_the_epoch_over_belongs_to_no_step(trace_of):
    unended = step(1, 100, 200, attrs='{"unclosed":true}')
    profile = Profile(trace_of(ranges=[step(0, 0, 100), wait(10, 20), unended, wait(120, 190)]))
    assert profile.input_waits()["input_wait"].to_list() == [10]
    loader = profile.data_preparation().row(0, named=True)
    assert (loader["total"], loader["input_wait"], loader["reason"]) == (80, 10, ONE_STEP)


def test_a_loader_inside_another_is_a_part_of_its_wait(trace_of):
    profile = Profile(trace_of(ranges=[
        step(0, 0, 1000), wait(10, 200, "DataLoader"), wait(20, 120, "datasets"), wait(130, 190, "datasets"),
        step(1, 1000, 2000), row("opscope.torch", "phase", "input", 1005, 1115), wait(1010, 1110, "DataLoader"),
    ]))  # fmt: skip
    assert profile.input_waits()["input_wait"].to_list() == [190, 110]
    assert profile.data_preparation()["loader"].to_list() == ["DataLoader of Images"]


def test_without_a_loader_nobody_knows_what_a_step_waited_for(trace_of):
    waited = Profile(trace_of(ranges=[step(0, 0, 100), step(1, 100, 200)])).input_waits()
    assert waited["input_wait"].to_list() == [None, None]
    assert waited["input_bound"].to_list() == [None, None]
    assert waited["reason"].to_list() == [NO_LOADER, NO_LOADER]


def test_a_step_that_asked_no_loader_waited_zero_where_loaders_are_seen(trace_of):
    waited = Profile(
        trace_of(ranges=[step(0, 0, 100), wait(10, 20), step(1, 100, 200)])
    ).input_waits()
    assert waited["input_wait"].to_list() == [10, 0]


def test_a_thread_that_prefetches_makes_no_step_wait(trace_of):
    profile = Profile(trace_of(ranges=[step(0, 0, 100), wait(0, 90, thread=2)]))
    assert profile.input_waits().row(0, named=True)["reason"] == OTHER_THREAD
    assert profile.data_preparation().row(0, named=True)["reason"] == NO_STEPS
    assert profile.data_preparation()["verdict"].to_list() == ["cannot tell"]


def test_what_a_graph_waits_for_counts_for_the_thread_with_the_steps(trace_of):
    inside = row("opscope.input", "input", "tf.data() {in_graph=true}", 10, 60, thread=9)
    profile = Profile(trace_of(ranges=[step(0, 0, 100), inside, step(1, 100, 200)]))
    assert profile.input_waits()["input_wait"].to_list() == [50, 0]


def test_a_node_that_is_only_announced_says_nothing_of_the_wait(trace_of):
    announced = row("TSL", None, "IteratorGetNext:IteratorGetNext#shape=()#", 10, 12, thread=9)
    profile = Profile(trace_of(ranges=[step(0, 0, 100), announced, step(1, 100, 200)]))
    assert profile.input_waits()["input_wait"].to_list() == [None, None]
    assert set(profile.input_waits()["reason"]) == {ANNOUNCED}
    loader = profile.data_preparation().row(0, named=True)
    assert (loader["calls"], loader["total"], loader["verdict"]) == (1, None, "cannot tell")


@pytest.mark.parametrize(
    ("domain", "category", "text", "loader"),
    [
        ("kineto", "input", '"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"()',
         "DataLoader (_SingleProcessDataLoaderIter)"),
        ("", None, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
         "DataLoader (_MultiProcessingDataLoaderIter)"),
        ("opscope.tensorflow", "input", "IteratorGetNext(resource[]) -> f32[8] on cpu", "tf.data"),
        ("opscope.keras", "phase", "input", "input"),
        ("opscope.user", "phase", "input", "input"),
    ],
)  # fmt: skip
def test_each_tools_way_to_show_a_wait_is_known(trace_of, domain, category, text, loader):
    profile = Profile(trace_of(ranges=[step(0, 0, 100), row(domain, category, text, 10, 50)]))
    assert profile.input_waits()["input_wait"].to_list() == [40]
    assert profile.data_preparation()["loader"].to_list() == [loader]


def test_a_users_range_is_no_wait(trace_of):
    ranges = [step(0, 0, 100), row("opscope.user", None, "load my input", 10, 50)]
    assert Profile(trace_of(ranges=ranges)).data_preparation().is_empty()


def test_processes_are_apart(trace_of):
    profile = Profile(trace_of(ranges=[
        step(0, 0, 100), wait(10, 60), step(0, 0, 100, process=1), wait(10, 20, process=1),
        step(0, 0, 100, process=2),
    ]))  # fmt: skip
    assert profile.input_waits().select("process", "input_wait").rows() == [
        (0, 50),
        (1, 10),
        (2, None),
    ]


intervals = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60)), max_size=30)


@given(intervals, st.lists(st.integers(1, 50), max_size=8), st.integers(0, 20))
def test_the_waits_of_steps_and_of_none_add_up_to_all_that_any_loader_was_waited_for(
    spans, lengths, gap
):
    rows, at = [], 0
    for number, length in enumerate(lengths):
        rows.append(step(number, at, at + length))
        at += length + gap
    rows += [wait(start, start + length) for start, length in spans]
    frame = pl.DataFrame(
        rows,
        schema={
            k: table_schema("ranges")[k]
            for k in (rows[0] if rows else step(0, 0, 1))
            if k != "payload"
        },
    )
    profile = Profile(Trace.of({"ranges": frame.with_row_index("id").cast({"id": pl.Int64})}))
    covered = {t for start, length in spans for t in range(start, start + length)}
    found = profile.data_preparation()
    assert (found["total"].sum() or 0) == len(covered)
    steps = profile.input_waits()
    assert (found["input_wait"].sum() or 0) == (steps["input_wait"].sum() or 0)
    known = steps.filter(pl.col("input_wait").is_not_null())
    assert (known["input_wait"] >= 0).all()
    assert (known["calls"] * 1 >= 0).all()
