"""Counters that CUPTI measured: which launch each kernel is of, and files that are not as they should be."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.cupti import counter_files as files
from opscope.core.tables.trace import Trace, table_schema
from opscope.readers.errors import BadInput
from opscope.readers.recording.with_counters import load, merge

RUNTIME = files.RUNTIME << files.SHIFT
LAUNCH, GRAPH = RUNTIME | 211, RUNTIME | 311


def launch(start, end, thread=7, correlation=None, call=LAUNCH, context=1):
    return [start, end, context, thread, start if correlation is None else correlation, call, 1]


def measured(tmp_path, launches, rows, *, began=0, ended=1 << 40, dropped=0, context=1, more=()):
    about = {"context": context, "device": 0, "began": began, "ended": ended, "passes": 1}
    lines = [
        {"version": 28, "counters": ["a.sum", "b.sum"]},
        {"names": {"1": "_Z1kv"}},
        {"measured": {**about, "dropped": dropped}},
        {"values": {"context": context, "rows": rows}},
        {"launches": launches},
        *more,
    ]
    path = tmp_path / files.COUNTERS
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    empty = {name: pl.DataFrame(schema=table_schema(name)) for name in ("ranges", "threads")}
    return merge(Trace.of(empty, {"probes": []}), load(path))


def correlations(trace) -> list[int | None]:
    table = trace["counters"].filter(pl.col("name").cast(pl.String) == "a.sum")
    return table.sort("range_id")["correlation"].to_list()


def test_a_kernel_is_of_the_launch_at_its_place_while_its_context_was_measured(tmp_path):
    launches = [
        launch(10, 20),  # before the measuring began
        launch(100, 110),
        launch(105, 106, context=2),  # of another context
        launch(300, 310),  # noted by another thread's end, earlier in the file
        launch(200, 210),
        launch(900, 910),  # after it had ended
    ]
    trace = measured(tmp_path, launches, [[1, 2], [3, 4], [5, None]], began=50, ended=800)
    assert correlations(trace) == [100, 200, 300]
    counters = trace["counters"].sort("range_id", "name")
    assert counters["value"].to_list() == [1, 2, 3, 4, 5]  # what was no number is not there
    marks = trace["ranges"]
    assert marks["start"].to_list() == [100, 200, 300]
    assert marks["text"].cast(pl.String).to_list() == ["k()"] * 3
    assert len(trace["calls"]) == 6


def test_kernels_without_room_are_the_last_ones(tmp_path):
    trace = measured(tmp_path, [launch(1, 2), launch(3, 4), launch(5, 6)], [[1, 1]], dropped=2)
    assert correlations(trace) == [1]
    assert "no room" in " ".join(trace["notes"]["what"])


@pytest.mark.parametrize(
    ("launches", "why"),
    [
        ([launch(1, 2)], "1 launch, and CUPTI measured 2 kernels"),
        ([launch(1, 2), launch(3, 4, call=GRAPH)], "1 launch of CUDA graphs"),
    ],
)
def test_in_doubt_no_kernel_has_a_launch(tmp_path, launches, why):
    trace = measured(tmp_path, launches, [[1, 1], [2, 2]])
    assert correlations(trace) == [None, None]
    assert trace["counters"]["value"].to_list() == [1, 1, 2, 2]
    assert why in " ".join(trace["notes"]["what"])


spans = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 6), st.sampled_from([7, 8])),
    min_size=1,
    max_size=12,
)


@given(spans)
def test_a_launch_has_counters_only_if_none_of_another_thread_overlaps_it(tmp_path_factory, spans):
    """A thread's own launches follow each other; so spans of one thread are laid after one another."""
    free = {7: 0, 8: 0}
    launches = []
    for number, (start, length, thread) in enumerate(sorted(spans)):
        start = max(start, free[thread]) + 1
        free[thread] = start + length
        launches.append(launch(start, start + length, thread, number + 1))
    folder = tmp_path_factory.mktemp("counters")
    trace = measured(folder, launches, [[1, 1]] * len(launches))
    threads = {one[3] for one in launches}
    for one, found in zip(sorted(launches), correlations(trace), strict=True):
        others = [two for two in launches if two[3] != one[3]]
        crossed = any(two[0] < one[1] and one[0] < two[1] for two in others)
        if crossed:
            assert found is None
        elif found is not None:
            assert found == one[4]
        else:  # two launches beside it crossed each other around it, or it touches one
            assert len(threads) == 2


def test_samples_are_rows_of_their_device_by_time(tmp_path):
    rows = [[100, 1.5, 2.5], [200, None, 3.5]]
    more = [{"samples": {"device": 3, "rows": rows}}, {"note": "told"}]
    more.append({"devices": [{"device": 3, "name": "NVIDIA A100", "sm_count": 108, "odd": 1}]})
    trace = measured(tmp_path, [], [], more=more)
    found = trace["samples"].sort("time", "name")
    assert found["value"].to_list() == [1.5, 2.5, 3.5]
    assert found["time"].to_list() == [100, 100, 200]
    assert trace["devices"]["sm_count"].to_list() == [108]
    assert trace["notes"]["what"].to_list() == ["told"]
    assert len(trace["counters"]) == 0


@pytest.mark.parametrize(
    "line",
    [
        {"measured": {"context": 1}},
        {"values": {"context": 5, "rows": [[1, 2]]}},
        {"values": {"context": 1, "rows": [[1]]}},
        {"launches": [[1, 2, 3]]},
        {"launches": [[1 << 70, 2, 3, 4, 5, 6, 7]]},
        {"names": {"x": "y"}},
        {"samples": {"device": 0, "rows": [[]]}},
        [1],
        3,
    ],
)
def test_a_damaged_file_is_told(tmp_path, line):
    with pytest.raises(BadInput):
        measured(tmp_path, [], [], more=[line])


@pytest.mark.parametrize(
    "first", ["", "[]\n", '{"version": 1}\n', '{"counters": ["a", "a"], "version": 1}\n']
)
def test_a_file_that_does_not_begin_as_it_should_is_told(tmp_path, first):
    path = tmp_path / files.COUNTERS
    path.write_text(first)
    with pytest.raises(BadInput):
        load(path)


def test_values_of_many_kernels_fit_into_lines(tmp_path):
    rows = np.arange(2_500).tolist()
    assert [len(piece) for piece in files.pieces(rows)] == [500] * 5
    assert files.finite([1.0, float("nan"), float("inf")]) == [1.0, None, None]
