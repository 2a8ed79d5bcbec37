"""What opscope itself costs: counted, timed in a sample, told in the profile and its summary."""

from __future__ import annotations

import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.backends.recorder import RecorderCapture
from opscope.core.analysis.summary.summary_table import summary_table as summary
from opscope.core.capture import own_cost, recorder_sink, session
from opscope.core.capture.own_cost import Cost, Spent
from opscope.core.capture.recorder_sink import Recorder
from opscope.core.tables.trace import Trace, table_schema
from opscope.profile import Profile
from opscope.readers.recording.reader import collect


def test_one_call_in_so_many_is_timed_and_stands_for_the_others(monkeypatch):
    clock = iter(range(1_000, 2_000, 7))
    monkeypatch.setattr(own_cost, "perf_counter_ns", lambda: next(clock))
    one = Cost("hooks", 4, 2)
    for _ in range(10):
        begin = one.begin()
        if begin:
            one.end(begin)
    assert one.timed == 2
    assert one.spent() == Spent("hooks", 7 * 10, 10, 4, 20)
    one.reset()
    assert one.spent() == Spent("hooks", 0, 0, 4, 0)
    assert one.begin() == 0
    assert one.spent() == Spent("hooks", None, 1, 4, 2)  # not known: none was timed


def test_what_was_interrupted_stands_for_no_other_call(monkeypatch):
    clock = iter([10, 20, 100, 100 + own_cost.LONGEST_SAMPLE])
    monkeypatch.setattr(own_cost, "perf_counter_ns", lambda: next(clock))
    one = Cost("hooks", 2, 1)
    for _ in range(4):
        begin = one.begin()
        if begin:
            one.end(begin)
    assert one.spent().time == 4 * 10 + own_cost.LONGEST_SAMPLE


def test_the_recorders_own_writing_and_ranges_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv("OPSCOPE_SAMPLES", "0")
    monkeypatch.setenv("OPSCOPE_STACKS", "0")
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
    assert costs["a part"]["steps_span"] is None  # there were no steps
    assert {row["span"] for row in costs.values()} == {costs["a part"]["span"]}
    assert costs["a part"]["span"] > 0


def test_of_the_steps_what_was_spent_in_them_is_told(tmp_path, monkeypatch, fresh_steps):
    session.start(RecorderCapture(tmp_path))
    spent = [100, 130, 500, 507, 900]
    before = iter(spent)
    session.recorder().spending.append(lambda: Spent("a part", next(before, 900), 1, 1, 0))
    monkeypatch.setattr(session.recorder(), "_flush_ns", 0)
    session.recorder().deadline = 1 << 62  # no flush between
    for _ in range(2):
        session.begin_step()
        session.end_step()
    session.stop()
    row = collect(tmp_path)["own_costs"].row(0, named=True)
    assert row["steps_time"] == (130 - 100) + (507 - 500)
    assert 0 < row["steps_span"] < row["span"]


@given(steps=st.lists(st.integers(1, 5 * 10**8), min_size=1, max_size=60))
def test_steps_that_follow_each_other_are_reckoned_together_and_none_is_lost(steps):
    recorder, time, asked = Recorder("unused"), 0, []
    recorder.deadline = 1 << 62  # no flush between
    recorder.spending.append(lambda: asked.append(time) or Spent("a part", time // 10, 1, 1, 0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own_cost, "perf_counter_ns", lambda: time)
        patch.setattr(recorder_sink, "perf_counter_ns", lambda: time)
        recorder.step_begins()
        for number, took in enumerate(steps, 1):
            time += 10 * took
            recorder.step_turns()
            # what a program that is killed now does not tell
            left = time - recorder._steps.time
            assert left < max(1, min(own_cost.TURN_NS, recorder._steps.time // own_cost.TURN_PART))
            assert recorder._steps.own == recorder._steps.time // 10
            assert len(asked) <= 1 + 2 * number
        recorder.step_ends()
    assert recorder._steps.time == time
    assert recorder._steps.own == time // 10


def test_what_opscope_cost_is_not_asked_in_each_of_many_short_steps(monkeypatch):
    recorder, time, asked = Recorder("unused"), 0, []
    recorder.deadline = 1 << 62
    recorder.spending.append(lambda: asked.append(time) or Spent("a part", 0, 1, 1, 0))
    monkeypatch.setattr(own_cost, "perf_counter_ns", lambda: time)
    monkeypatch.setattr(recorder_sink, "perf_counter_ns", lambda: time)
    recorder.step_begins()
    for _ in range(10_000):
        time += 10**6
        recorder.step_turns()
    assert 10 <= len(asked) <= 100  # of ten seconds


@pytest.mark.parametrize(("took", "most"), [(10**6, 66), (10**8, 1000)])
def test_of_short_steps_with_gaps_a_part_is_asked_for_all_and_the_writing_is_exact(
    took, most, monkeypatch
):
    recorder, time, asked = Recorder("unused"), 0, []
    recorder.deadline = 1 << 62
    own = 0
    recorder.spending.append(lambda: asked.append(time) or Spent("a part", own, 1, 1, 0))
    monkeypatch.setattr(own_cost, "perf_counter_ns", lambda: time)
    monkeypatch.setattr(recorder_sink, "perf_counter_ns", lambda: time)
    for number in range(1000):
        recorder.step_begins()
        time += took
        own += took // 10
        recorder._flush_ns += 1000 if number % 7 == 0 else 0
        recorder.step_ends()
        time += 5 * took  # between steps the part costs nothing, and writing does
        recorder._flush_ns += 300
    assert recorder._steps.time == 1000 * took
    assert recorder._steps.own == 1000 * (took // 10) + 143 * 1000
    assert 32 <= len(asked) <= 2 * most
    left = len(asked)
    recorder.step_begins()
    for _ in range(3):
        time += 2 * own_cost.TURN_NS
        own += own_cost.TURN_NS
        recorder.step_turns()
    recorder.step_ends()
    assert recorder._steps.time == 1000 * took + 6 * own_cost.TURN_NS
    assert left < len(asked) <= left + 8


def test_a_long_first_step_does_not_hide_what_short_ones_cost(monkeypatch):
    """A program that compiles for ten seconds, and then has steps of a millisecond with gaps between them."""
    recorder, time, own = Recorder("unused"), 0, 0
    recorder.deadline = 1 << 62
    recorder.spending.append(lambda: Spent("a part", own, 1, 1, 0))
    monkeypatch.setattr(own_cost, "perf_counter_ns", lambda: time)
    for took, cost in [(10**10, 1000), *[(10**6, 50_000)] * 1000]:
        recorder.step_begins()
        time += took
        own += cost
        recorder.step_ends()
        time += took
    assert recorder._steps.own == pytest.approx(1000 * 50_000, rel=0.03)


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


def told(profile):
    rows = summary(profile).rows
    return next((row["remark"] for row in rows if row["what"] == "cost of recording"), None)


def test_the_share_is_of_the_time_that_all_processes_recorded():
    rows = [
        (0, "ops", 30, 1, 64, 400, None, None),
        (0, "writing", 10, 1, 1, 400, None, None),
        (1, "ops", 60, 1, 64, 600, None, None),
    ]
    names = table_schema("own_costs")
    profile = made(pl.DataFrame(rows, schema=names, orient="row"))
    row = profile.summary().row(0, named=True)
    assert row["own_time"] == 100
    assert row["own_share"] == pytest.approx(0.1)
    assert row["own_steps_share"] is None
    assert told(profile).startswith("10.0 % of the time recorded")
    stepping = [(*one[:6], 100 * (one[0] + 1), 30) for one in rows]
    profile = made(pl.DataFrame(stepping, schema=names, orient="row"))
    assert profile.summary()["own_steps_share"].item() == pytest.approx(60 / 300)
    assert told(profile) == (
        "20.0 % of the steps' time; the framework's cost of calling opscope is not in it"
    )


def test_a_trace_that_does_not_tell_has_no_figure():
    row = Profile(Trace.of({})).summary().row(0, named=True)
    assert row["own_time"] is None
    assert row["own_share"] is None
    assert told(Profile(Trace.of({}))) is None
    assert summary(Profile(Trace.of({}))).footnotes == []
