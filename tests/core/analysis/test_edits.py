"""Edits of the timeline: what a change of rows and spans saves, alone and with others."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opscope
from opscope.core.advice.said import simulate
from opscope.core.analysis.critical.edits import Edit, _least, edited
from opscope.core.analysis.critical.graph import full_graph
from opscope.core.analysis.ops.ops import op_index
from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from tests.core.analysis.test_critical_path import call, copy, kernel, launch, op, step, traces

#: Real traces with one device, with ranks, with waits, with a graph, and without a GPU.
REAL = [
    "kineto/alexnet_cuda_sync_a100.json.gz",
    "kineto/resnet50_nw0_step_span1.pt.trace.json.gz",
    "kineto/vision_transformer_rank0.json.gz",
    "nsys/multiprocessing_nogpu_2020.sqlite",
]


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def times(*factors: float) -> np.ndarray:
    return np.array(factors, float)


def whole(profile: Profile, *edits: Edit) -> dict:
    return simulate(profile, edits).row(0, named=True)


def everything(trace: Trace, factor: float) -> Edit:
    """All device work, all calls and all time of threads."""

    def all_of(table):
        return np.arange(len(trace[table])), np.full(len(trace[table]), factor)

    return Edit(
        kernels=all_of("kernels"), memops=all_of("memops"), launches=all_of("calls"),
        host=threads(trace, factor),
    )  # fmt: skip


def threads(trace: Trace, factor: float) -> pl.DataFrame:
    """One span for each thread, longer than the trace."""
    parts = [trace[name].select("process", "thread") for name in ("ranges", "calls")]
    found = pl.concat([part.cast(pl.Int64) for part in parts]).drop_nulls().unique()
    return found.with_columns(
        start=pl.lit(-(1 << 40)), end=pl.lit(1 << 61), factor=pl.lit(float(factor))
    )


@pytest.fixture
def waiting(trace_of) -> Profile:
    """A launch, its kernel, a call that waits for it, and host work behind that."""
    return Profile(
        trace_of(
            ranges=[step(0, 0, 200), op("a", 0, 20), op("b", 110, 200)],
            calls=[
                launch(10, 1),
                call("cudaStreamSynchronize", 30, 104, 2),
                call(
                    "cudaStreamSynchronize", 105, 107, 3
                ),  # nothing to wait for: its own time is 2
            ],
            kernels=[kernel(20, 100, 1)],
        )
    )


def test_a_kernel_that_is_gone_saves_what_was_waited_for(waiting):
    assert whole(waiting)["saving"] == 0
    assert whole(waiting, Edit(kernels=(rows(0), times(0))))["saving"] == 72
    assert whole(waiting, Edit(kernels=(rows(0), times(0.5))))["saving"] == 40


def test_a_call_that_waits_no_longer_takes_its_own_time(waiting):
    # the next one would wait in its place
    assert whole(waiting, Edit(waits=rows(1)))["saving"] == 3
    unwaited = whole(waiting, Edit(waits=rows(1, 2)))
    assert unwaited["saving"] == unwaited["removed_time"] == 72
    gone = whole(waiting, Edit(launches=(rows(1, 2), times(0, 0))))
    assert gone["saving"] == gone["removed_time"] == 76


def test_a_span_of_a_thread_is_scaled_in_its_part_alone(waiting):
    def saved(start, end, factor):
        span = {"process": 0, "thread": 1, "start": start, "end": end, "factor": factor}
        return whole(waiting, Edit(host=pl.DataFrame([span])))["saving"]

    assert saved(110, 200, 0.5) == 45
    assert saved(150, 1000, 0.0) == 50
    assert saved(31, 99, 0.0) == 0  # the thread waits
    assert saved(300, 400, 0.0) == 0


def test_of_changes_to_the_same_work_the_smallest_factor_counts(waiting):
    half, quarter = (Edit(kernels=(rows(0), times(one))) for one in (0.5, 0.25))
    assert whole(waiting, half, quarter) == whole(waiting, quarter)
    assert whole(waiting, half, half) == whole(waiting, half)
    spans = [
        Edit(
            host=pl.DataFrame(
                {"process": [0], "thread": [1], "start": [a], "end": [b], "factor": [f]}
            )
        )
        for a, b, f in ((110, 160, 0.5), (140, 200, 0.1))
    ]
    assert whole(waiting, *spans)["saving"] == 15 + 54


def test_the_steps_have_their_own_savings(waiting):
    found = simulate(waiting, [Edit(kernels=(rows(0), times(0)))])
    assert found.select("step", "wall_time", "saving").rows() == [(None, 200, 72), (0, 200, 72)]


def test_copies_are_scaled_by_their_own_rows(trace_of):
    profile = Profile(
        trace_of(
            calls=[launch(0, 1), call("cudaMemcpyAsync", 10, 15, 2)],
            kernels=[kernel(20, 60, 1)],
            memops=[copy(60, 100, 2)],
        )
    )
    assert whole(profile, Edit(memops=(rows(0), times(0))))["saving"] == 40
    # without the kernel the copy begins when its launch lets it
    assert whole(profile, Edit(kernels=(rows(0), times(0))))["saving"] == 30


@pytest.mark.parametrize(
    "edit",
    [
        Edit(kernels=(rows(1), times(1))), Edit(kernels=(rows(-1), times(1))), Edit(waits=rows(9)),
        Edit(kernels=(rows(0), times(-1))), Edit(launches=(rows(0), times(np.nan))),
        Edit(kernels=(rows(0), times(1, 1))), Edit(launches=(rows(0), times(1e4))),
        Edit(host=pl.DataFrame({"process": [0], "thread": [1], "start": [0], "end": [9], "factor": [-1.0]})),
        Edit(host=pl.DataFrame({"process": [0], "thread": [None], "start": [0], "end": [9], "factor": [1.0]})),
    ],
)  # fmt: skip
def test_an_edit_that_does_not_fit_the_trace_is_refused(waiting, edit):
    with pytest.raises(ValueError, match=r"factor|row|span"):
        simulate(waiting, [edit])


def test_a_trace_without_times_has_no_replay(trace_of):
    assert simulate(Profile(trace_of()), [Edit()]) is None


# ------------------------------------------------------------------------------------------- the laws


@st.composite
def edits(draw: st.DrawFn, trace: Trace) -> Edit:
    """Factors of at most 1 for some rows of each table and some spans."""
    factor = st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0])

    def some(table):
        many = len(trace[table])
        if not many:
            return None
        chosen = draw(st.lists(st.integers(0, many - 1), max_size=4))
        return rows(*chosen), times(*(draw(factor) for _ in chosen))

    spans = [
        {"process": 0, "thread": draw(st.integers(1, 2)), "start": start,
         "end": start + draw(st.integers(0, 40)), "factor": draw(factor)}
        for start in draw(st.lists(st.integers(-5, 90), max_size=3))
    ]  # fmt: skip
    launches = some("calls")
    waits = None
    if launches is not None and draw(st.booleans()):
        waits = launches[0][:1]
    return Edit(
        kernels=some("kernels"), memops=some("memops"), launches=launches, waits=waits,
        host=pl.DataFrame(spans) if spans else None,
    )  # fmt: skip


def laws(profile: Profile, some: list[Edit]) -> None:
    """Nothing is saved by no edit, never more than is removed, and by all at least what each saves."""
    nothing = simulate(profile, [])
    if nothing is None:
        return
    assert nothing["saving"].to_list() == [0] * len(nothing)
    assert nothing["wall_time"][0] == profile.summary()["wall_time"][0]
    alone = [whole(profile, one) for one in some]
    together = whole(profile, *some)
    assert 0 <= together["saving"] <= together["removed_time"]
    for one in alone:
        assert 0 <= one["saving"] <= one["removed_time"]
        assert together["saving"] >= one["saving"]
    assert together["removed_time"] <= sum(one["removed_time"] for one in alone)
    if len(some) == 1:
        assert together == alone[0]
    none_left = whole(profile, everything(profile.trace, 0.0), *some)
    assert none_left["saving"] >= together["saving"]


@given(traces(), st.data())
def test_the_laws_hold_on_made_traces(trace, data):
    profile = Profile(trace)
    laws(profile, data.draw(st.lists(edits(trace), min_size=1, max_size=3)))


@pytest.mark.parametrize("name", REAL)
def test_the_laws_hold_on_real_traces(name, shared):
    profile = opscope.load(shared / name)
    trace, chance = profile.trace, np.random.default_rng(1)

    def some(table):
        many = len(trace[table])
        chosen = chance.integers(0, max(many, 1), many // 3)
        return chosen, chance.choice([0.0, 0.5, 0.9], len(chosen))

    made = [
        Edit(kernels=some("kernels")),
        Edit(memops=some("memops"), launches=some("calls")),
        Edit(waits=some("calls")[0], host=threads(trace, 0.5)),
    ]
    laws(profile, made)
    laws(profile, made[:1])
    gone = whole(profile, everything(trace, 0.0))
    assert gone["new_wall_time"] < gone["wall_time"]


def test_the_replay_of_a_factor_for_all_is_that_of_what_if(shared):
    profile = opscope.load(shared / REAL[0])
    many = len(profile.trace["kernels"])
    ours = whole(profile, Edit(kernels=(np.arange(many), np.full(many, 0.5))))
    copies = profile.memops()["kind"].str.to_lowercase().str.contains("memset").not_()
    theirs = profile.what_if(kernels={"*": 0.5}).row(0, named=True)
    rest = np.arange(len(copies)), np.full(len(copies), 0.5)
    both = whole(profile, Edit(kernels=(np.arange(many), np.full(many, 0.5)), memops=rest))
    assert both == theirs
    assert ours["saving"] <= theirs["saving"]


@given(st.data())
def test_the_least_of_overlapping_stretches_is_that_of_each_place(data):
    many = data.draw(st.integers(1, 40))
    found = data.draw(st.lists(st.tuples(st.integers(0, many - 1), st.integers(1, 40)), min_size=1))
    first = np.array([one for one, _ in found])
    last = np.minimum(first + np.array([length for _, length in found]), many)
    factor = np.array(
        data.draw(st.lists(st.floats(0, 2), min_size=len(found), max_size=len(found)))
    )
    expected = np.full(many, np.inf)
    for begin, end, one in zip(first, last, factor, strict=True):
        expected[begin:end] = np.minimum(expected[begin:end], one)
    assert (
        _least(many, first, last, factor).tolist()
        == np.where(np.isinf(expected), 1.0, expected).tolist()
    )


def test_edits_are_replayed_without_a_profile_too(waiting):
    assert edited(waiting.of(op_index), waiting.of(full_graph), []).height == 2
