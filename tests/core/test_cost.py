"""What opscope itself costs: counted, timed in a sample, told in the profile and its summary."""

from __future__ import annotations

import json

import polars as pl
import pytest

from opscope.backends.recorder import RecorderCapture, collect
from opscope.core import cost, session
from opscope.core.cost import Cost, Spent
from opscope.core.trace import Trace
from opscope.profile import Profile
from opscope.reports import console


def test_one_call_in_so_many_is_timed_and_stands_for_the_others(monkeypatch):
    clock = iter(range(1_000, 2_000, 7))
    monkeypatch.setattr(cost, "perf_counter_ns", lambda: next(clock))
    one = Cost("hooks", 4, 2)
    for _ in range(10):
        begin = one.begin()
        if begin:
            one.end(begin)
    assert one.timed == 2
    assert one.spent() == Spent("hooks", 7 * 10, 10, 4, 20)
    one.reset()
    assert one.spent() == Spent("hooks", 0, 0, 4, 0)


def test_the_recorders_own_writing_and_ranges_are_told(tmp_path):
    session.start(RecorderCapture(tmp_path))
    recorder = session.recorder()
    recorder.spending.append(lambda: Spent("a part", 5, 3, 1, 10))
    user = session.emitter("user")
    prepared = user.prepare("range")
    for _ in range(50):
        user.push(prepared)
        user.pop()
    session.stop()
    trace = collect(tmp_path)
    costs = {row["part"]: row for row in trace["own_costs"].to_dicts()}
    assert set(costs) == {"a part", "other ranges", "writing"}
    assert (costs["a part"]["time"], costs["a part"]["calls"]) == (5, 3)
    assert costs["other ranges"]["calls"] == 100 - 10  # ten of the records were the part's
    assert costs["other ranges"]["time"] > 0
    assert costs["other ranges"]["one_in"] is None
    assert costs["writing"]["calls"] >= 1
    assert {row["span"] for row in costs.values()} == {costs["a part"]["span"]}
    assert costs["a part"]["span"] > 0


def test_the_latest_figure_of_a_part_counts(tmp_path):
    """A part that is cut off has what was told each second."""
    session.start(RecorderCapture(tmp_path))
    session.stop()
    (part,) = tmp_path.glob("part-*")
    with (part / "facts.jsonl").open("a") as facts:
        for time in (1, 2):
            facts.write(json.dumps({"cost": "x", "time": time, "calls": 1, "one_in": 1}) + "\n")
    assert collect(tmp_path)["own_costs"].filter(pl.col("part") == "x")["time"].to_list() == [2]


def made(costs):
    processes = pl.DataFrame({"process": [0, 1], "host": ["a", "a"], "pid": [1, 2]})
    return Profile(Trace.of({"processes": processes, "own_costs": costs}))


def test_the_share_is_of_the_time_that_all_processes_recorded():
    rows = [(0, "ops", 30, 1, 64, 400), (0, "writing", 10, 1, 1, 400), (1, "ops", 60, 1, 64, 600)]
    costs = pl.DataFrame(
        rows, schema=["process", "part", "time", "calls", "one_in", "span"], orient="row"
    )
    profile = made(costs)
    row = profile.summary().row(0, named=True)
    assert row["own_time"] == 100
    assert row["own_share"] == pytest.approx(0.1)
    (line,) = [one for one in console.summary(profile).rows if one["what"] == "opscope itself"]
    assert line["remark"].startswith("10.0 %")


def test_a_trace_that_does_not_tell_has_no_figure():
    row = Profile(Trace.of({})).summary().row(0, named=True)
    assert row["own_time"] is None
    assert row["own_share"] is None
    assert not [
        one
        for one in console.summary(Profile(Trace.of({}))).rows
        if one["what"] == "opscope itself"
    ]
