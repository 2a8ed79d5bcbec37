"""Iterations: marked, ended by a key node, or detected; what is in them, warm-up, and the stable range."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.steps.iterations import stable
from opscope.core.analysis.steps.warm_up import warm_ups
from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from opscope.reports import console

LONG = [50, 30, *[10] * 8]


def calls(steps: list[int], layers: bool = False, marked: bool = False, process: int = 0):
    """Ranges and kernels of steps of three ops: ``mean`` once in each; the second takes as long as given."""
    ranges, launches, kernels, time = [], [], [], 0
    same = {"process": process, "thread": 1, "kind": "pushpop"}
    for number, lasts in enumerate(steps):
        begin = time
        for name, length in (("a", 10), ("b", 10 * lasts), ("mean", 10)):
            ranges.append(
                {**same, "start": time, "end": time + length, "domain": "opscope.x",
                 "category": "forward", "text": f"x::{name}(f32[4])"}
            )  # fmt: skip
            key = {"process": process, "correlation": len(launches)}
            launches.append({**key, "thread": 1, "name": "cudaLaunchKernel",
                             "start": time + 1, "end": time + 2})  # fmt: skip
            kernels.append({**key, "device": 0, "stream": 7, "name": f"k_{name}",
                            "start": time + 3, "end": time + 7})  # fmt: skip
            time += length + 5
        if layers:
            ranges.append({**same, "start": begin, "end": time - 1, "domain": "opscope.x",
                           "category": "layer", "text": "net"})  # fmt: skip
        if marked:
            ranges.append({**same, "start": begin, "end": time, "domain": "opscope.step",
                           "category": "step", "text": f"step {number + 3}"})  # fmt: skip
        time += 3
    return {"ranges": ranges, "calls": launches, "kernels": kernels}


def test_marked_steps_are_the_iterations(trace_of):
    table = Profile(trace_of(**calls(LONG, marked=True))).iterations()
    assert table["iteration"].to_list() == list(range(3, 13))
    assert set(table["found_by"]) == {"marked"}
    assert table["certainty"].null_count() == 10
    assert set(table["ops"]) == {3}
    assert set(table["kernels"]) == {3}
    assert set(table["device_time"]) == {12}
    assert (table["duration"] == table["end"] - table["start"]).all()
    assert table["warm_up"].to_list() == [True, True, *[False] * 8]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12))
def test_what_is_in_the_iterations_adds_up_to_the_whole(lengths):
    tables = {
        name: pl.DataFrame(rows).with_columns(pl.col("process").cast(pl.Int32))
        for name, rows in calls(lengths, marked=True).items()
    }
    tables["ranges"] = (
        tables["ranges"].with_row_index("id").with_columns(pl.col("id").cast(pl.Int64))
    )
    table = Profile(Trace.of(tables)).iterations()
    assert table["ops"].sum() == table["kernels"].sum() == 3 * len(lengths)
    assert table["device_time"].sum() == 4 * 3 * len(lengths)
    assert table["duration"].sum() == sum(10 * one + 35 for one in lengths)


def test_the_stable_range_leaves_out_warm_up_and_slow_ones_and_says_why(trace_of):
    (one,) = stable(
        Profile(trace_of(**calls([50, *[10] * 4, 40, *[10] * 7], marked=True))).iterations()
    )
    assert (one.first, one.last) == (9, 15)
    assert "7 in a row" in one.reason
    assert "after 1 of warm-up" in one.reason
    (none,) = stable(Profile(trace_of(**calls([10, 10], marked=True))).iterations())
    assert none.first is None
    assert "no 3 iterations in a row" in none.reason


def test_a_key_node_ends_iterations_and_every_report_takes_them(trace_of):
    profile = Profile(trace_of(**calls(LONG)))
    table = profile.iterations(key="x::mean")
    assert table["iteration"].to_list() == list(range(10))
    assert set(table["found_by"]) == {"key node x::mean"}
    ends = [row["end"] for row in calls(LONG)["ranges"] if "mean" in row["text"]]
    assert table["end"].to_list() == ends
    assert table["start"].to_list() == [0, *ends[:-1]]
    steps = profile.steps(key="x::mean")
    assert steps["step"].to_list() == list(range(10))
    part = profile.op_totals(key="x::mean", steps=(2, 4))
    assert part.filter(op="x::a")["calls"].item() == 3
    assert part["kernels"].sum() == 9
    assert profile.op_totals().filter(op="x::a")["calls"].item() == 10, "the whole stays as it is"


def test_a_key_node_replaces_the_steps_that_are_marked(trace_of):
    profile = Profile(trace_of(**calls([10] * 6, marked=True)))
    assert profile.steps()["step"].to_list() == list(range(3, 9))
    assert profile.steps(key="x::mean")["step"].to_list() == list(range(6))
    notes = profile.select(key="x::mean").notes()["what"].to_list()
    assert "steps are the iterations that a key node ends: x::mean" in notes


def test_an_op_is_a_key_node_by_its_id_too(trace_of):
    profile = Profile(trace_of(**calls(LONG)))
    number = profile.ops().filter(op="x::mean")["op_id"][4]
    by_id = profile.iterations(key=str(number))
    assert by_id["end"].to_list() == profile.iterations(key="x::mean")["end"].to_list()


def test_a_key_node_that_nothing_is_named_gives_names_that_are_near(trace_of):
    profile = Profile(trace_of(**calls(LONG)))
    with pytest.raises(ValueError, match="is named x::meen: did you mean x::mean"):
        profile.iterations(key="x::meen")


def test_what_repeats_under_a_layers_name_is_steps_in_all_reports(trace_of):
    profile = Profile(trace_of(**calls(LONG, layers=True)))
    assert profile.summary()["steps"].item() == 10
    table = profile.iterations()
    assert set(table["found_by"]) == {"model net"}
    assert table["is_step"].all()
    assert table["certainty"].min() > 0.98
    (what,) = [one for one in profile.notes()["what"] if one.startswith("steps inferred")]
    assert "confidence 0.99" in what
    assert profile.steps()["step"].to_list() == list(range(10))


def test_what_repeats_without_a_place_is_listed_with_its_doubt_and_is_no_steps(trace_of):
    profile = Profile(trace_of(**calls(LONG)))
    table = profile.iterations()
    assert table["iteration"].to_list() == list(range(10))
    assert not table["is_step"].any()
    assert table["certainty"].max() < 0.61
    assert set(table["reason"]) == {
        "no text names the place that repeats: it may be the layers of one pass"
    }
    assert profile.summary()["steps"].item() == 0
    assert profile.steps()["step"].to_list() == [None]


def test_a_range_of_iterations_that_are_not_sure_can_be_selected(trace_of):
    profile = Profile(trace_of(**calls(LONG)))
    part = profile.select(steps=(3, 5))
    assert part.selected == "steps 3 to 5"
    assert part.steps()["step"].to_list() == [3, 4, 5]
    assert part.kernels()["name"].len() == 9
    (what,) = [one for one in part.notes()["what"] if one.startswith("steps detected")]
    assert "confidence 0.60" in what
    with pytest.raises(ValueError, match="steps 0 to 9"):
        profile.select(steps=99)


def test_kernels_without_ops_repeat_too(trace_of):
    made = calls([10] * 6)
    table = Profile(trace_of(calls=made["calls"], kernels=made["kernels"])).iterations()
    assert len(table) == 6
    assert set(table["found_by"]) == {"kernels"}
    assert not table["is_step"].any()


def test_a_process_without_iterations_has_one_row_with_the_reason(trace_of):
    table = Profile(trace_of(**calls([10]))).iterations()
    assert table["iteration"].to_list() == [None]
    assert table["reason"].item() == "fewer than 6 ops outside any other"
    (one,) = stable(Profile(trace_of(**calls([10]))).iterations())
    assert one.reason == "fewer than 6 ops outside any other"


def test_where_something_is_trained_a_repetition_may_be_a_part_of_a_step(trace_of):
    made = calls([10] * 8, layers=True)
    made["ranges"][1]["category"] = "backward"
    profile = Profile(trace_of(**made))
    assert profile.summary()["steps"].item() == 0
    table = profile.iterations()
    assert len(table) == 8
    assert "after how many of them the weights are updated" in table["reason"][0]


@pytest.mark.parametrize(
    ("steps", "many"),
    [
        (LONG, 2),
        ([*[10] * 8, 50], 0),
        ([11, *[10] * 9], 0),  # slower by a tenth
        ([50, 10, 10, 10], None),  # too few to judge
        ([*[50] * 5, *[10] * 7], 0),  # not soon over
        ([50, 10, 50, *[10] * 9], 1),
    ],
)
def test_warm_up_is_what_is_slow_at_first_and_soon_over(trace_of, steps, many):
    profile = Profile(trace_of(**calls(steps, marked=True)))
    warm = profile.steps()["warm_up"]
    assert warm.to_list() == (
        [None] * len(steps) if many is None else [n < many for n in range(len(steps))]
    )


@given(st.lists(st.integers(1, 10**9), min_size=5, max_size=60))
def test_at_most_a_third_is_warm_up_and_each_of_it_is_slower_than_later_ones(times):
    many = warm_ups(np.array(times))
    assert many <= len(times) / 3
    assert all(time > np.median(times[len(times) // 2 :]) for time in times[:many])


def test_warm_up_leaves_the_statistics_of_steps_and_never_the_totals(trace_of):
    profile = Profile(trace_of(**calls(LONG, marked=True)))
    row = profile.step_summary().filter(part="step").row(0, named=True)
    times = profile.steps()["time"]
    assert row["total"] == times.sum()
    assert row["steps"] == 10
    assert row["warm_up_steps"] == 2
    assert row["slow_steps"] == 0
    assert (row["median"], row["min"], row["max"]) == (times[5], times[5], times[5])
    assert profile.summary()["kernel_time"].item() == 30 * 4
    (table,) = console.tables(profile, ["step_summary"], 20)
    assert any("warm-up: step 3, step 4" in note for note in table.footnotes)


def test_two_processes_have_iterations_of_their_own(trace_of):
    one, other = calls([10] * 6, marked=True), calls([10] * 5, process=1)
    both = {name: one[name] + other[name] for name in one}
    table = Profile(trace_of(**both)).iterations()
    assert table.filter(process=0)["found_by"].unique().to_list() == ["marked"]
    assert table.filter(process=1)["found_by"].unique().to_list() == ["sequence"]
    assert table.group_by("process").len().sort("process")["len"].to_list() == [6, 5]


@pytest.mark.parametrize(
    ("name", "marked", "found"),
    [
        ("kineto/ddp_memory_v100.json.gz", 5, 5),
        ("kineto/ddp_rank3of8_a100_stacks.json.gz", 6, 6),
        ("kineto/nccl_meta.json.gz", 3, 3),
        ("kineto/resnet50_nw0_step_span1.pt.trace.json.gz", 6, 6),
        ("kineto/resnet50_nw4_step_span1.pt.trace.json.gz", 6, 6),
        ("kineto/vision_transformer_rank0.json.gz", 5, 5),
        # what runs once or twice does not repeat
        ("kineto/qwen1.5_0.5b_h100.json.gz", 1, 0),
        ("kineto/sampled_rank0.json.gz", 2, 0),
        ("kineto/sampled_rank1.json.gz", 2, 0),
        ("kineto/timesformer_h100.json.gz", 1, 0),
        ("kineto/triton_example.json.gz", 1, 0),
        ("onnxruntime/resnet_inference_gemmini.json", 1, 0),
        ("mindspore/msprof_device0", 10, 0),  # the tasks of one step of ten
        # one graph of steps without ops between them: four or five kernels of all steps have a time
        ("mindspore/mindinsight_profiler_misc/dynamic_shape_info_0.json", 9, 0),
    ],
)
def test_the_iterations_of_every_real_trace_that_marks_steps_are_found_without_the_marks(
    shared, name, marked, found
):
    from opscope import load

    trace = load(shared / name).trace
    is_step = (trace["ranges"]["category"] == "step").fill_null(False)
    assert is_step.sum() == marked
    hidden = Profile(trace.replace(ranges=trace["ranges"].filter(~is_step))).iterations()
    sure = hidden.filter(pl.col("iteration").is_not_null() & pl.col("is_step"))
    assert len(sure) == found
