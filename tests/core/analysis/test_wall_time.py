"""All of a process's wall time in one table: its rows add up to the run, from the process's start to its exit."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.host.wall_time import (
    LINES,
    NO_BEGIN,
    NO_EXIT,
    Life,
    layered,
    lives,
    process_rows,
)
from opscope.core.question.layout import lines
from opscope.core.question.record import View
from opscope.core.question.registry import reports
from opscope.core.tables.intervals import merge
from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from opscope.reports.console import first_screen, light_screen
from tests import traces
from tests.core.analysis.test_light_diagnosis import training

MS = 1_000_000
NO_LINES = pl.DataFrame(schema=LINES)


def spans(*pairs: tuple[int, int]):
    return merge(
        *(
            np.array(column, np.int64)
            for column in (zip(*pairs, strict=True) if pairs else ((), ()))
        )
    )


def a_range(start, end, category, text, domain="opscope.torch"):
    return {
        "process": 0, "thread": 1, "start": start * MS, "end": end * MS, "domain": domain,
        "category": category, "text": text, "kind": "pushpop",
    }  # fmt: skip


#: A run of 1000 ms: 100 ms before opscope, a training with three steps, 60 ms after opscope.
RANGES = [
    a_range(300, 310, None, "aten::ones()"),
    a_range(400, 500, "step", "step 0", "opscope.step"),
    a_range(410, 450, "phase", "compile 0/0"),
    a_range(450, 470, "forward", "aten::mm()"),
    a_range(470, 490, "backward", "aten::mul()"),
    a_range(500, 600, "step", "step 1", "opscope.step"),
    a_range(510, 550, "forward", "aten::mm()"),
    a_range(700, 800, "step", "step 2", "opscope.step"),
    a_range(710, 750, "forward", "aten::mm()"),
]
TIMES = [
    ("began", 0, 0, None),
    ("recorded", 100, 940, None),
    ("import", 110, 250, "torch._dynamo"),
    ("import", 410, 420, "torch.fx"),
    ("ended", 1000, 1000, None),
]


def recorded(times=TIMES, ranges=RANGES) -> Profile:
    rows = [
        {"process": 0, "kind": kind, "start": start * MS, "end": end * MS, "name": name}
        for kind, start, end, name in times
    ]
    tables = {
        "processes": pl.DataFrame({"process": [0], "pid": [7]}),
        "ranges": pl.DataFrame(ranges),
        "process_times": pl.DataFrame(rows, schema_overrides={"name": pl.String}),
    }
    return Profile(Trace.of(tables, {"format": "opscope-recording"}))


def times_of(profile: Profile) -> dict[str, float | None]:
    rows = profile.wall_time().select("section", "part", "time").rows()
    return {part or section: None if time is None else time / MS for section, part, time in rows}


def test_each_part_of_a_run_has_its_row_and_all_add_up_to_the_run():
    frame = recorded().wall_time()
    times = times_of(recorded())
    assert frame["time"].sum() == 1000 * MS
    assert frame["share"].sum() == pytest.approx(1)
    assert times["before opscope"] == 100
    assert times["imports"] == 150  # those in a step too
    assert times["compiling"] == 30  # without what was imported meanwhile
    assert times["before"] == 60  # 100 to 110, 250 to 300
    assert times["building"] == 100
    assert times["between"] == 100
    assert times["after opscope"] == 60
    steps = frame.filter(pl.col("section") == "steps")
    assert steps["time"].sum() == (300 - 40) * MS  # the rest of the first is imports and compiling
    assert times["forward"] == 100


def test_time_outside_any_op_is_told_where_nothing_else_explains_it():
    outside = dict(
        recorded().wall_time().group_by("section").agg(pl.col("outside_ops").sum()).rows()
    )
    frame = recorded().wall_time()
    assert (
        frame.filter(pl.col("section").is_in(["imports", "compiling"]))["outside_ops"].null_count()
        == 2
    )
    assert outside["building"] == 90 * MS
    assert outside["between"] == 100 * MS


def test_the_imports_are_named_by_package():
    (detail,) = recorded().wall_time().filter(pl.col("section") == "imports")["detail"]
    assert detail == "torch 150 ms"


def test_what_a_recording_does_not_know_of_its_process_is_null_with_the_reason():
    frame = recorded([row for row in TIMES if row[0] != "ended"]).wall_time()
    (row,) = frame.filter(pl.col("time").is_null()).to_dicts()
    assert (row["section"], row["reason"]) == ("after opscope", NO_EXIT)
    assert frame["time"].sum() == 940 * MS


def test_of_a_trace_the_time_before_and_after_is_unknown():
    frame = recorded([]).wall_time()
    unknown = frame.filter(pl.col("time").is_null())
    assert unknown["section"].to_list() == ["before opscope", "after opscope"]
    assert set(unknown["reason"]) == {NO_BEGIN}
    assert frame["time"].sum() == 500 * MS  # from the first event to the last


def test_a_selection_is_no_whole_run():
    frame = recorded().wall_time(steps=1)
    assert frame["time"].sum() == 100 * MS
    assert frame.filter(pl.col("time").is_null()).height == 2


def test_the_time_between_two_recordings_of_a_process_was_not_seen():
    times = [*TIMES[:1], ("recorded", 100, 550, None), ("recorded", 650, 940, None), TIMES[-1]]
    assert times_of(recorded(times))["while opscope paused"] == 100


def test_a_killed_process_has_its_events():
    times = [("began", 0, 0, None), ("recorded", 350, 600, None)]
    assert sum(time or 0 for time in times_of(recorded(times)).values()) == 800


def test_lines_that_were_sampled_say_where_the_time_outside_ops_went():
    sampled = pl.DataFrame(
        [(0, 10, 40, "a.py:1", "python"), (0, 40, 90, "b.py:2", "python")],
        schema=LINES,
        orient="row",
    )
    life = Life(0, 100, spans((0, 100)))
    layers = [("between", None, spans((0, 100)))]
    (row,) = process_rows(life, layers, spans((60, 90)), sampled)
    assert (row["outside_ops"], row["line"], row["line_time"]) == (70, "a.py:1", 30)


PAIRS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: tuple(sorted(pair))),
    max_size=6,
)


@given(st.integers(0, 10), st.integers(0, 30), st.lists(PAIRS, max_size=4))
def test_every_nanosecond_is_in_the_first_layer_that_has_it(low, length, layers):
    own = layered((low, low + length), [spans(*pairs) for pairs in layers])
    expected = [0] * (len(layers) + 1)
    for time in range(low, low + length):
        has = [any(start <= time < end for start, end in pairs) for pairs in layers]
        expected[has.index(True) if True in has else len(layers)] += 1
    assert [int((end - start).sum()) for start, end in own] == expected


@given(
    st.one_of(st.none(), st.integers(0, 5)),
    st.one_of(st.none(), st.integers(31, 40)),
    PAIRS,
    st.lists(PAIRS, max_size=3),
    PAIRS,
)
def test_the_rows_add_up_to_all_that_is_known(began, ended, ran, layers, ops):
    ran = spans(*ran, (10, 20))
    life = Life(began, ended, ran)
    named = [
        (name, None, spans(*pairs))
        for name, pairs in zip(("imports", "between", "after"), layers, strict=False)
    ]
    rows = process_rows(life, named, spans(*ops), NO_LINES)
    first = min(time for time in (began, int(ran[0][0])) if time is not None)
    last = max(time for time in (ended, int(ran[1][-1])) if time is not None)
    assert sum(row["time"] or 0 for row in rows) == last - first
    assert sum(row["time"] is None for row in rows) == (began is None) + (ended is None)
    assert all((row.get("outside_ops") or 0) <= (row["time"] or 0) for row in rows)


REAL = [
    "kineto/resnet50_nw0_step_span1.pt.trace.json.gz",
    "nsys/fsdp_h100x2_2026.sqlite",
    "xplane/jax_conv_mi300.xplane.pb",
]


@pytest.mark.parametrize("name", REAL)
def test_the_rows_of_a_real_trace_add_up_to_the_nanosecond(shared, name):
    profile = traces.load(shared / name)
    times = dict(profile.wall_time().group_by("process").agg(pl.col("time").sum()).rows())
    whole = {
        process: int(life.recorded[1][-1] - life.recorded[0][0])
        for process, life in profile.of(lives).items()
    }
    assert times == whole


def screen(profile: Profile, width: int = 100) -> list[str]:
    report = reports()["wall_time"]
    return [line for _, line in lines(report.table(report, profile, View(20, first=True)), width)]


def test_the_first_screen_shows_it_in_few_lines_and_hides_no_time():
    shown = screen(recorded())
    assert shown[0] == "Wall time: 1.00 s, from the process's start to its exit"
    assert len(shown) <= 15
    assert any("3 steps" in line for line in shown)
    assert any("not seen: before opscope began" in line for line in shown)


def test_the_first_screen_of_a_trace_says_what_it_is_of():
    shown = screen(recorded([]))
    assert shown[0] == "Wall time: 500 ms, from the first event to the last"
    assert shown[-1] == f"not known: what was before and after; {NO_BEGIN}"


def test_of_several_processes_the_first_screen_has_one_and_compares_the_others():
    ranges = [*RANGES, *({**row, "process": 1, "end": row["end"] + MS} for row in RANGES)]
    shown = screen(recorded([], ranges))
    assert shown[0].startswith("Wall time of process 1: 501 ms")
    assert "others" in shown[1]
    assert shown[-1] == "others: 1 other process; each: --reports wall_time"


def test_a_trace_that_nothing_divides_has_no_wall_time_on_the_first_screen():
    kernels = pl.DataFrame({"process": [0], "start": [5], "end": [9], "name": ["k"]})
    profile = Profile(Trace.of({"kernels": kernels}))
    assert profile.wall_time()["time"].to_list() == [None, 4, None]
    assert screen(profile) == ["Wall time"]
    titles = [table.title for table in first_screen(profile)]
    assert not any(title.startswith("Wall time") for title in titles)


def test_short_steps_are_one_row_that_says_the_shares_of_its_parts():
    ranges = [*RANGES, a_range(90_000, 90_001, None, "aten::ones()")]
    profile = recorded([], ranges)
    (row,) = [line for line in screen(profile) if "3 steps" in line]
    steps = profile.wall_time().filter(pl.col("section") == "steps").sort("time", descending=True)
    shares = steps.select("part", pl.col("time") / pl.col("time").sum()).rows()
    assert row.endswith(", ".join(f"{part} {100 * share:.1f} %" for part, share in shares))


def test_a_model_that_onnx_runtime_loads_is_compiling():
    loading = a_range(310, 390, "phase", "session_initialization", "opscope.onnxruntime")
    assert times_of(recorded([], [*RANGES, loading]))["compiling"] == 40 + 80


def test_the_run_of_light_mode_adds_up_with_its_steps_by_phase():
    """Steps of 8 ms from 100 ms on, each 2 ms input and 4 ms forward; the run has imports, and time after."""
    made = training({"input": 2 * MS, "forward": 4 * MS, "other": 2 * MS}, steps=100)
    times = [
        (0, -90 * MS, -90 * MS, "began", None),
        (0, -50 * MS, 900 * MS, "recorded", None),
        (0, -40 * MS, -10 * MS, "import", "torch"),
        (0, 400 * MS, 405 * MS, "import", "lazy"),
        (0, 950 * MS, 950 * MS, "ended", None),
    ]
    tables = {name: made[name] for name in made.present}
    schema = {
        "process": pl.Int32,
        "start": pl.Int64,
        "end": pl.Int64,
        "kind": pl.String,
        "name": pl.String,
    }
    tables["process_times"] = pl.DataFrame(times, schema=schema, orient="row")
    # of some steps all was recorded besides: their ops say nothing of the run
    tables["ranges"] = pl.DataFrame(RANGES).with_row_index("id")
    profile = Profile(Trace.of(tables, {"format": "made"}))
    frame = profile.wall_time()
    shown = {
        (row["section"], row["part"]): (row["time"] // MS, row["count"]) for row in frame.to_dicts()
    }
    assert shown == {
        ("before opscope", None): (40, None),
        ("imports", None): (30, 2),
        ("building", None): (20, None),
        ("steps", "input"): (200, 100),
        ("steps", "forward"): (400, 100),
        ("steps", "other"): (200, 100),
        ("after", None): (100, None),
        ("after opscope", None): (50, None),
    }
    assert frame["time"].sum() == 1040 * MS
    assert frame["share"].sum() == pytest.approx(1)
    assert not frame["outside_ops"].drop_nulls().len()
    titles = [table.title for table in light_screen(profile)]
    assert "Wall time: 1.04 s, from the process's start to its exit" in titles


def test_a_process_whose_only_event_lasts_no_time_has_no_rows():
    profile = recorded(times=[], ranges=[a_range(5, 5, "forward", "aten::mm()")])
    assert profile.of(lives) == {}
    assert len(profile.wall_time()) == 0


def test_what_has_no_process_ends_no_answer(trace_of):
    """Nobody's own file lacks them, and a stranger's may."""
    ranges = [
        {"process": None, "thread": 1, "start": 100 * n, "end": 100 * n + 90, "kind": "pushpop", "category": category,
         "text": text, "domain": "opscope.torch"}
        for n in range(6) for category, text in (("step", f"step {n}"), (None, "aten::mm(f32[2,2], f32[2,2]) -> f32[2,2]"))
    ]  # fmt: skip
    times = [{"process": None, "kind": "process", "start": 0, "end": 900}]
    profile = Profile(trace_of(ranges=ranges, process_times=times, processes=[{"process": 0}]))
    assert profile.diagnosis().height
    assert profile.wall_time() is not None
