"""Steps: their parts and phases add up to them, the slow ones say why, and the unknown is not 0."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.ops.windows import OUTSIDE_WINDOW
from opscope.core.analysis.steps.step_times import NO_STEPS, OTHER, PARTS, covered, split
from opscope.core.analysis.steps.steps import NOTHING, PHASE_COLUMNS
from opscope.core.tables.intervals import merge
from opscope.profile import Profile

MAIN, ENGINE = 1, 2
US = 1_000


def a_range(start, end, text, category, thread=MAIN, process=0, **more):
    return {"process": process, "thread": thread, "end_thread": thread, "start": start, "end": end,
            "text": text, "category": category, "domain": "opscope.torch", "kind": "pushpop",
            **more}  # fmt: skip


def step(number, start, end, **more):
    return a_range(start, end, f"step {number}", "step", **{"domain": "opscope.step", **more})


def op(name, start, end, category="forward", **more):
    return a_range(start, end, f"{name}()", category, **more)


def phase(name, start, end, **more):
    return a_range(start, end, name, "phase", **more)


def a_call(start, end, correlation, name="cudaLaunchKernel", thread=MAIN, process=0):
    return {"process": process, "thread": thread, "start": start, "end": end, "name": name,
            "correlation": correlation}  # fmt: skip


def a_kernel(start, end, correlation=None, name="gemm", stream=7, process=0):
    return {"process": process, "device": 0, "stream": stream, "start": start, "end": end,
            "name": name, "correlation": correlation}  # fmt: skip


def a_memop(start, end, kind, correlation=None):
    return {"process": 0, "device": 0, "stream": 7, "start": start, "end": end, "kind": kind,
            "bytes": 8, "correlation": correlation}  # fmt: skip


def profile_of(trace_of, ranges, **tables) -> Profile:
    return Profile(trace_of(ranges=sorted(ranges, key=lambda row: row["start"]), **tables))


# ---------------------------------------------------------------------------------- the parts

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=6)


@given(st.lists(st.none() | spans, min_size=1, max_size=7), spans.filter(len))
def test_the_parts_of_a_step_add_up_to_it_and_the_first_has_each_moment(parts, steps):
    unions = [
        None
        if part is None
        else merge(
            np.array([a for a, _ in part], np.int64), np.array([a + n for a, n in part], np.int64)
        )
        for part in parts
    ]
    start = np.array([a for a, _ in steps], np.int64)
    end = np.array([a + n for a, n in steps], np.int64)
    found = split(unions, start, end)
    for place, (low, high) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        owner = [
            next(
                (
                    number
                    for number, part in enumerate(parts)
                    if part is not None and any(a <= moment < a + n for a, n in part)
                ),
                None,
            )
            for moment in range(low, high)
        ]
        for number, part in enumerate(found):
            if part is None:
                assert parts[number] is None
            else:
                assert part[place] == owner.count(number)
        assert sum(int(part[place]) for part in found if part is not None) <= high - low


@given(spans, st.integers(0, 80), st.integers(0, 80))
def test_what_a_union_covers_is_counted_moment_by_moment(held, one, other):
    low, high = sorted((one, other))
    union = merge(
        np.array([a for a, _ in held], np.int64), np.array([a + n for a, n in held], np.int64)
    )
    expected = sum(any(a <= moment < a + n for a, n in held) for moment in range(low, high))
    assert covered(union, np.array([low]), np.array([high])).tolist() == [expected]


def test_a_collective_s_kernel_is_communication_and_no_kernel(trace_of):
    profile = profile_of(
        trace_of,
        [step(4, 0, 100), op("aten::mm", 0, 30), op("aten::copy_", 35, 45)],
        calls=[a_call(5, 10, 1), a_call(11, 12, 2), a_call(36, 40, 3), a_call(92, 98, 4, "cudaFree")],
        kernels=[
            a_kernel(15, 35, 1),
            a_kernel(25, 50, 2, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", 9),
        ],
        memops=[a_memop(48, 60, "HtoD", 3), a_memop(59, 64, "memset")],
    )  # fmt: skip
    (row,) = profile.steps().rows(named=True)
    assert [row[name] for name in (*PARTS, OTHER)] == [25, 10, 10, 4, 12, None, 9, 30]
    assert row["overlap_time"] == 10
    assert sum(row[name] or 0 for name in (*PARTS, OTHER)) == row["time"] == 100
    assert row["unknown"] == "no data loader was seen", "a loader of 0 would be a claim"


def test_without_a_gpu_the_device_s_parts_are_unknown(trace_of):
    profile = profile_of(
        trace_of,
        [
            step(0, 0, 100),
            op("DataLoader", 0, 20, "input"),
            op("aten::mm", 30, 60),
            op("AddmmBackward0", 60, 90, "backward", thread=ENGINE),
        ],
    )
    (row,) = profile.steps().rows(named=True)
    unknown = ("kernel_part", "copy_part", "set_part", "runtime_part", "overlap_time")
    assert [row[name] for name in unknown] == [None] * 5
    assert (row["loader_part"], row["op_part"], row["other_part"]) == (20, 60, 20)
    assert row["unknown"] == "not recorded: kernels, copies and sets, calls of the GPU's runtime"
    assert [row[name] for name in PHASE_COLUMNS] == [20, 30, 30, None, 20]


def test_a_collective_of_which_only_the_call_was_seen_is_unknown_and_else_what_the_backend_ran(
    trace_of,
):
    call = op(
        'c10d::allreduce_([f32[8]], _) -> ([=0], _) {process_group="0"}', 10, 12, "communication"
    )
    call["text"] = call["text"].removesuffix("()")
    ran = a_range(12, 50, "gloo:all_reduce(f32[8])", "communication", thread=ENGINE)
    alone = profile_of(trace_of, [step(0, 0, 100), call]).steps().row(0, named=True)
    assert alone["communication_part"] is None
    assert "only the calls of collectives" in alone["unknown"]
    both = profile_of(trace_of, [step(0, 0, 100), call, ran]).steps().row(0, named=True)
    assert both["communication_part"] == 38
    assert both["op_part"] == 2


def test_kernels_of_collectives_alone_tell_nothing_of_other_kernels(trace_of):
    profile = profile_of(
        trace_of, [step(0, 0, 100)], kernels=[a_kernel(10, 40, name="ncclKernel_AllReduce")]
    )
    (row,) = profile.steps().rows(named=True)
    assert (row["communication_part"], row["kernel_part"], row["other_part"]) == (30, None, 70)


def test_a_step_in_which_nothing_was_recorded_has_no_parts(trace_of):
    profile = profile_of(trace_of, [step(1, 0, 100), step(2, 100, 200)], kernels=[a_kernel(10, 40)])
    first, second = profile.steps().rows(named=True)
    assert (first["kernel_part"], first["other_part"]) == (30, 70)
    assert (second["kernel_part"], second["other_part"]) == (None, None)
    assert second["reason"] == NOTHING
    assert profile.step_summary()["left_out"][0] == 1


def test_a_trace_without_steps_is_one_row_a_process_if_the_host_shows_its_span(trace_of):
    profile = profile_of(trace_of, [op("aten::mm", 10, 40), op("aten::add", 60, 90)])
    (row,) = profile.steps().rows(named=True)
    assert (row["step"], row["start"], row["end"], row["slow"]) == (None, 10, 90, None)
    assert (row["op_part"], row["other_part"], row["reason"]) == (60, 20, NO_STEPS)
    assert row["forward_phase"] == 60, "without steps, what lies between two ops is not known"
    summary = profile.step_summary().row(0, named=True)
    assert (summary["steps"], summary["total"], summary["median"]) == (0, 80, None)
    assert profile.step_trace().is_empty()
    alone = Profile(trace_of(kernels=[a_kernel(0, 10)]))
    assert alone.steps().is_empty(), "kernels alone do not show when the program began"


def test_times_laid_end_to_end_are_no_steps_but_those_of_the_other_files_are(trace_of):
    ranges = [step(0, 0, 100), step(0, 0, 100, process=1)]
    ranges += [op("aten::mm", 10, 40), op("aten::mm", 10, 40, process=1)]
    made_up = {"times": "made up"}
    assert Profile(trace_of(ranges=ranges, origin=made_up)).steps().is_empty()
    parts = [{**made_up, "first_process": 0}, {"first_process": 1}]
    both = Profile(trace_of(ranges=ranges, origin={"format": "several", "parts": parts}))
    assert both.steps()["process"].to_list() == [1]


def test_a_step_that_the_window_cuts_has_a_time_and_no_parts(trace_of):
    window = {"process": 0, "start": 90, "end": 210, "source": "kineto"}
    profile = profile_of(
        trace_of,
        [step(n, 100 * n, 100 * n + 100) for n in range(3)] + [op("aten::mm", 110, 150)],
        calls=[a_call(115, 118, 1)],
        kernels=[a_kernel(120, 160, 1)],
        memops=[],
        windows=[window],
    )
    rows = profile.steps().rows(named=True)
    assert [row["kernel_part"] for row in rows] == [None, 40, None]
    assert [row["reason"] for row in rows] == [OUTSIDE_WINDOW, None, OUTSIDE_WINDOW]
    assert [row["time"] for row in rows] == [100, 100, 100]
    assert profile.step_summary().row(0, named=True)["left_out"] == 2
    device = profile.step_phases().group_by("step", maintain_order=True)
    known = pl.col("device_time").count().alias("known")
    assert device.agg(pl.col("device_time").sum(), known).rows() == [
        (0, 0, 0), (1, 40, 2), (2, 0, 0),
    ]  # fmt: skip


def test_a_step_that_nothing_ended_is_left_out(trace_of):
    ranges = [
        step(0, 0, 100, attrs=None),
        step(1, 100, 900, attrs='{"unclosed":true}'),
        op("aten::mm", 10, 20),
    ]
    assert profile_of(trace_of, ranges).steps()["step"].to_list() == [0]


def test_a_gpu_s_communication_is_unknown_if_its_kernels_were_not_captured(trace_of):
    profile = profile_of(
        trace_of, [step(0, 0, 100), op("aten::mm", 10, 40)], calls=[a_call(12, 20, 1)]
    )
    (row,) = profile.steps().rows(named=True)
    assert (row["communication_part"], row["kernel_part"], row["runtime_part"]) == (None, None, 8)
    assert "kernels, communication, copies and sets" in row["unknown"]


def test_each_process_has_its_own_steps_and_its_own_kernels(trace_of):
    profile = profile_of(
        trace_of,
        [step(0, 0, 100), step(0, 0, 80, process=1, thread=9)],
        kernels=[a_kernel(10, 30), a_kernel(0, 60, process=1), a_kernel(20, 90, stream=8)],
        processes=[{"process": 0, "rank": 5}, {"process": 1, "rank": 3}],
    )
    rows = profile.steps().select("process", "rank", "kernel_part", "other_part").rows()
    assert rows == [(0, 5, 80, 20), (1, 3, 60, 20)]


# --------------------------------------------------------------------------------- the phases

ops = st.lists(
    st.tuples(
        st.sampled_from(["forward", "backward", "optimizer", "input", "communication"]),
        st.integers(0, 180),
        st.integers(0, 30),
        st.sampled_from([MAIN, ENGINE]),
        st.booleans(),
    ),
    max_size=12,
)


@given(ops, st.lists(st.integers(0, 200), min_size=2, max_size=5, unique=True))
def test_the_phases_and_what_is_outside_add_up_to_each_step(trace_of, made, bounds):
    bounds = sorted(bounds)
    ranges = [step(n, a, b) for n, (a, b) in enumerate(pairwise(bounds))]
    for name, start, length, thread, is_phase in made:
        one = phase(name, start, start + length, thread=thread) if is_phase else op(
            f"aten::{name}", start, start + length, name, thread=thread
        )  # fmt: skip
        ranges.append(one)
    profile = profile_of(trace_of, ranges)
    for row in profile.steps().rows(named=True):
        phases = [row[name] for name in PHASE_COLUMNS]
        if phases[-1] is None:
            assert phases == [None] * 5
        else:
            assert sum(one or 0 for one in phases) == row["time"]
            assert min(one or 0 for one in phases) >= 0
        parts = [row[name] for name in (*PARTS, OTHER)]
        if row["reason"] is None:
            assert sum(one or 0 for one in parts) == row["time"]
    known = pl.col("time").count().alias("known")
    long = profile.step_phases().group_by("step").agg(pl.col("time").sum(), known)
    whole = dict(profile.steps().select("step", "time").rows())
    for number, time, known in long.rows():
        assert known == 0 or time == whole[number]
    for row in profile.step_trace().rows(named=True):
        if row["reason"] is None:
            assert row["time"] == (
                row["iteration_interval"] + row["forward_backward"] + row["step_tail"]
            )
            assert row["iteration_interval"] >= 0
            assert row["forward_backward"] >= 0
            assert row["step_tail"] >= 0


def test_ranges_that_mark_phases_come_before_ops_and_the_innermost_counts(trace_of):
    profile = profile_of(
        trace_of,
        [
            step(0, 0, 100),
            phase("optimizer", 10, 90),  # a closure: it runs the model
            phase("forward", 20, 40),
            phase("backward", 40, 60),
            op("aten::mm", 22, 30),
            op("aten::add", 92, 95),  # nothing shows that a forward pass runs it
        ],
    )
    (row,) = profile.steps().rows(named=True)
    assert [row[name] for name in PHASE_COLUMNS] == [None, 20, 20, 40, 20]


def test_a_gap_between_ops_of_one_phase_belongs_to_it_but_not_across_steps(trace_of):
    profile = profile_of(
        trace_of,
        [
            step(0, 0, 50),
            step(1, 50, 100),
            op("aten::mm", 5, 10),
            op("aten::add", 20, 30),
            op("aten::mm", 60, 70),
        ],
    )
    assert profile.steps()["forward_phase"].to_list() == [25, 10]


def test_device_time_goes_to_the_phase_and_step_that_launched_it(trace_of):
    nccl = "ncclKernel_AllReduce_RING_LL_Sum_float"
    profile = profile_of(
        trace_of,
        [
            step(0, 0, 100),
            step(1, 100, 200),
            op("aten::mm", 10, 20),
            op("MmBackward0", 30, 60, "backward", thread=ENGINE),
            op("nccl:all_reduce", 45, 50, "communication", thread=ENGINE),
        ],
        calls=[a_call(12, 14, 1), a_call(31, 33, 2, thread=ENGINE), a_call(46, 48, 3, thread=ENGINE)],
        kernels=[a_kernel(15, 95, 1), a_kernel(95, 150, 2), a_kernel(150, 190, 3, nccl, 9)],
        memops=[],
    )  # fmt: skip
    found = profile.step_phases().select("step", "phase", "device_time", "kernels")
    rows = {(s, name): (time, many) for s, name, time, many in found.rows() if many}
    assert rows == {(0, "forward"): (80, 1), (0, "backward"): (95, 2)}
    assert profile.steps()["kernel_part"].to_list() == [85, 50]


# ------------------------------------------------------------------------- spread, slow steps


def training(slow=(), lengths=None, many=10):
    """Steps of 100 µs with an input of 10, and in the ``slow`` ones of 60, from a loader."""
    ranges, at = [], 0
    for number in range(many):
        wait = 60 if number in slow else 10
        length = (lengths or {}).get(number, 90 + wait)
        ranges += [
            step(number, at * US, (at + length) * US),
            op("DataLoader", at * US, (at + wait) * US, "input"),
            op("aten::mm", (at + wait) * US, (at + wait + 80) * US),
        ]
        at += length
    return ranges


def test_a_slow_step_says_which_part_and_which_op_it_had_more_of(trace_of):
    profile = profile_of(trace_of, training(slow=(6,)))
    assert profile.steps().filter("slow")["step"].to_list() == [6]
    (row,) = profile.slow_steps().rows(named=True)
    assert (row["step"], row["time"], row["usual"], row["excess"]) == (
        6, 150 * US, 100 * US, 50 * US,
    )  # fmt: skip
    assert (row["part"], row["part_time"], row["part_excess"]) == (
        "data loader", 60 * US, 50 * US,
    )  # fmt: skip
    assert (row["op"], row["op_time"], row["op_excess"]) == ("DataLoader", 60 * US, 50 * US)


def test_a_phase_of_input_is_the_loader_and_explains_slow_steps(trace_of):
    """The recorder marks the loader's time as a phase; the loader itself need not be an op."""
    ranges = [
        phase("input", one["start"], one["end"]) if "DataLoader" in one["text"] else one
        for one in training(slow=(6,))
    ]
    profile = profile_of(trace_of, ranges)
    assert profile.steps()["loader_part"].to_list() == [10 * US] * 6 + [60 * US] + [10 * US] * 3
    (row,) = profile.slow_steps().rows(named=True)
    assert (row["part"], row["op"], row["op_excess"]) == ("data loader", "input", 50 * US)


def test_time_that_nothing_explains_has_no_op(trace_of):
    profile = profile_of(trace_of, training(lengths={3: 250}))
    (row,) = profile.slow_steps().rows(named=True)
    assert (row["step"], row["part"], row["op"]) == (3, "other", None)
    assert row["part_excess"] == row["excess"] == 150 * US


def test_a_step_that_compiles_says_so(trace_of):
    ranges = [
        *training(lengths={0: 950}),
        phase("compile jit(step)", 95 * US, 940 * US),
        phase("compile jit(step)", 100 * US, 900 * US),  # inside the other: counted once
        phase("epoch 0", 0, 2000 * US),
    ]
    (row,) = profile_of(trace_of, ranges).slow_steps().rows(named=True)
    assert (row["step"], row["part"], row["op"]) == (0, "other", "compile jit(step)")
    assert row["op_excess"] == 845 * US


def test_an_op_that_runs_in_slow_steps_only_is_all_excess(trace_of):
    ranges = [
        *training(lengths={3: 250}),
        a_range(400 * US, 549 * US, "aten::save()", "forward"),
    ]
    profile = profile_of(trace_of, ranges)
    (row,) = profile.slow_steps().rows(named=True)
    assert (row["op"], row["op_time"], row["op_excess"]) == ("aten::save", 149 * US, 149 * US)


def test_a_kernel_s_and_a_call_s_excess_are_named_too(trace_of):
    ranges, calls, kernels = [], [], []
    for number in range(8):
        at, longer = 300 * number, 90 if number == 2 else 0
        ranges += [step(number, at * US, (at + 300) * US), op("aten::mm", at * US, (at + 5) * US)]
        calls += [
            a_call((at + 1) * US, (at + 2) * US, number),
            a_call((at + 200) * US, (at + 220 + longer // 2) * US, 100 + number, "cudaFree"),
        ]
        kernels.append(a_kernel((at + 10) * US, (at + 50 + longer) * US, number))
    # the step with more is longer than the others too
    ranges = [
        {**row, "end": row["end"] - 100 * US} if row["category"] == "step" and "2" not in row["text"] else row
        for row in ranges
    ]  # fmt: skip
    profile = profile_of(trace_of, ranges, calls=calls, kernels=kernels, memops=[])
    rows = profile.slow_steps().filter(pl.col("op").is_not_null()).rows(named=True)
    assert {(row["part"], row["op"], row["op_excess"]) for row in rows} >= {
        ("kernels", "aten::mm", 90 * US)
    }
    assert {row["step"] for row in rows} == {2}


def test_few_steps_are_not_judged_and_a_little_longer_is_not_slow(trace_of):
    few = profile_of(trace_of, training(slow=(1,), many=4))
    assert few.steps()["slow"].to_list() == [None] * 4
    assert few.step_summary().row(0, named=True)["slow_steps"] is None
    jitter = profile_of(trace_of, training(lengths={5: 104}))
    assert not jitter.steps()["slow"].any(), "with a MAD of 0 every difference would be an outlier"


@given(st.lists(st.integers(1, 1000), min_size=5, max_size=30))
def test_what_is_slow_is_above_the_median_and_few(trace_of, lengths):
    profile = profile_of(trace_of, training(lengths=dict(enumerate(lengths)), many=len(lengths)))
    table = profile.steps()
    slow = table.filter("slow")
    assert len(slow) < len(table) / 2
    if len(slow):
        assert slow["time"].min() > table["time"].median()
    summary = profile.step_summary().row(0, named=True)
    assert summary["warm_up_steps"] == table["warm_up"].sum()
    usual = table.filter(~pl.col("warm_up"))["time"].to_numpy()
    assert (summary["min"], summary["max"]) == (usual.min(), usual.max())
    assert summary["median"] == pytest.approx(np.median(usual))
    spread = np.abs(usual - summary["median"])
    assert summary["mad"] == pytest.approx(np.median(spread))
    assert summary["total"] == table["time"].sum()


def test_the_shares_of_a_summary_s_parts_add_up_to_one(trace_of):
    summary = profile_of(trace_of, training(slow=(2,))).step_summary()
    parts = summary.filter(~pl.col("part").str.starts_with("phase") & (pl.col("part") != "step"))
    assert parts["share"].sum() == pytest.approx(1)
    phases = summary.filter(pl.col("part").str.starts_with("phase"))
    assert phases["share"].sum() == pytest.approx(1)


# ----------------------------------------------------------------------------- the step trace


def test_a_step_trace_runs_from_the_end_of_the_step_before(trace_of):
    ranges = []
    for number in range(2):
        at = 100 * number
        ranges += [
            step(number, at + 10, at + 100),
            op("aten::zero_", at + 12, at + 14),  # before the input: not the forward pass
            op("DataLoader", at + 15, at + 30, "input"),
            op("aten::mm", at + 40, at + 50),
            op("MmBackward0", at + 50, at + 70, "backward", thread=ENGINE),
            op("aten::add_", at + 75, at + 90, "optimizer"),
        ]
    first, second = profile_of(trace_of, ranges).step_trace().rows(named=True)
    names = ("time", "iteration_interval", "forward_backward", "step_tail", "seen_on")
    assert [first[name] for name in names] == [90, 30, 30, 30, "host"]
    assert [second[name] for name in names] == [100, 40, 30, 30, "host"]


def test_a_step_without_backward_says_so(trace_of):
    ranges = [step(0, 0, 50), op("aten::mm", 10, 40)]
    (row,) = profile_of(trace_of, ranges).step_trace().rows(named=True)
    assert (row["iteration_interval"], row["forward_backward"], row["step_tail"]) == (
        10,
        None,
        None,
    )
    assert row["reason"] == "no backward pass was seen in this step"


def test_points_that_the_source_states_come_before_ours(trace_of):
    told = '{"forward_start":5,"backward_end":60}'
    ranges = [
        step(0, 0, 100, attrs=told),
        op("aten::mm", 10, 40, attrs=None),
        op("MmBackward0", 40, 80, "backward", attrs=None),
    ]
    (row,) = profile_of(trace_of, ranges).step_trace().rows(named=True)
    assert (row["iteration_interval"], row["forward_backward"], row["step_tail"]) == (5, 55, 40)
    assert row["seen_on"] == "the source"
    ranges[0]["attrs"] = '{"forward_start":5,"backward_end":600}'  # after the step's end
    (row,) = profile_of(trace_of, ranges).step_trace().rows(named=True)
    assert (row["forward_start"], row["backward_end"]) == (10, 80)
