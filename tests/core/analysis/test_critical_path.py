"""The critical path and what-ifs: made traces counted by hand, laws, and a slow longest path."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.critical.graph import (
    FOLLOWS_MAIN,
    IN_LANE,
    MEET,
    NO_SYNCS,
    NOT_MATCHED,
    Graph,
    full_graph,
)
from opscope.core.analysis.critical.path import path_nodes
from opscope.core.analysis.critical.replay import replay, wall
from opscope.core.analysis.critical.waits import NO_EVENT
from opscope.core.analysis.critical.what_if import NothingSelected
from opscope.core.tables.trace import Trace, table_schema
from opscope.profile import Profile


def op(name: str, start: int, end: int, thread: int = 1, **more: object) -> dict:
    return {"process": 0, "thread": thread, "domain": "opscope.torch", "category": "forward",
            "kind": "pushpop", "text": f"{name}()", "start": start, "end": end, **more}  # fmt: skip


def step(number: int, start: int, end: int, thread: int = 1) -> dict:
    return {"process": 0, "thread": thread, "domain": "opscope.step", "category": "step",
            "kind": "pushpop", "text": f"step {number}", "start": start, "end": end}  # fmt: skip


def call(
    name: str, start: int, end: int, correlation: int, thread: int = 1, **more: object
) -> dict:
    return {"process": 0, "thread": thread, "name": name, "start": start, "end": end,
            "correlation": correlation, **more}  # fmt: skip


def launch(start: int, correlation: int, thread: int = 1) -> dict:
    return call("cudaLaunchKernel", start, start + 4, correlation, thread)


def kernel(start: int, end: int, correlation: int | None, stream: int = 7, **more: object) -> dict:
    return {"process": 0, "device": 0, "stream": stream, "name": f"k{correlation}",
            "start": start, "end": end, "correlation": correlation, **more}  # fmt: skip


def copy(start: int, end: int, correlation: int, kind: str = "DtoH", stream: int = 7) -> dict:
    return {"process": 0, "device": 0, "stream": stream, "kind": kind, "bytes": 4,
            "start": start, "end": end, "correlation": correlation}  # fmt: skip


def made(trace: Trace) -> Graph:
    graph = Profile(trace).of(full_graph)
    assert graph is not None
    return graph


def path(profile: Profile) -> list[tuple]:
    return profile.critical_path().select("kind", "name", "duration").rows()


def saved(profile: Profile, **change: object) -> int:
    return profile.what_if(**change)["saving"][0]


def notes(profile: Profile) -> list[str]:
    return profile.notes(critical_path=True)["what"].to_list()


# what the path is made of


def test_on_an_idle_stream_the_path_goes_from_the_kernel_to_its_launch(trace_of):
    profile = Profile(
        trace_of(
            ranges=[op("mm", 0, 20)],
            calls=[launch(10, 1)],
            kernels=[kernel(16, 100, 1)],
        )
    )
    assert path(profile) == [("op", "mm", 10), ("launch", "k1", 6), ("kernel", "k1", 84)]
    assert saved(profile, kernels={"k1": 0}) == 80  # then the op's own end is the last
    assert saved(profile, host=0) == 10
    assert saved(profile, launches=0) == 6
    # the host's 10 before the launch, and what the kernel took
    assert saved(profile, ops={"mm": 0}) == 94


def test_on_a_busy_stream_the_path_goes_from_kernel_to_kernel(trace_of):
    profile = Profile(
        trace_of(
            ranges=[op("mm", 0, 30)],
            calls=[launch(0, 1), launch(10, 2), launch(20, 3)],
            kernels=[kernel(5, 50, 1), kernel(52, 90, 2), kernel(99, 110, 3)],
        )
    )
    # the usual gap of this trace is (2 + 9) / 2; what is above it has no explanation
    assert path(profile) == [
        ("launch", "k1", 5), ("kernel", "k1", 45), ("gap", "k2", 2), ("kernel", "k2", 38),
        ("gap", "k3", 5), ("unexplained", "k3", 4), ("kernel", "k3", 11),
    ]  # fmt: skip
    assert saved(profile, kernels={"k2": 0}) == 38
    # the third kernel could begin at 25, but the op ends at 30
    assert saved(profile, kernels={"*": 0}) == 110 - 30


def test_a_copy_that_waited_for_the_kernel_before_it_does_not_hold_the_host_without_it(trace_of):
    profile = Profile(
        trace_of(
            ranges=[op("mm", 0, 20), op("relu", 130, 150)],
            calls=[launch(5, 1), call("cudaMemcpyAsync", 20, 112, 2)],
            kernels=[kernel(10, 100, 1)],
            memops=[copy(101, 110, 2)],
        )
    )
    # the copy's call is the only one of its name, and most of it was the wait for the kernel
    assert saved(profile, kernels={"k1": 0.5}) == 45


def test_the_host_waits_for_the_device_in_a_synchronising_call(trace_of):
    tables = {
        "ranges": [op("mm", 0, 20), op("relu", 130, 150)],
        "calls": [launch(5, 1), call("cudaDeviceSynchronize", 20, 103, 2)],
        "kernels": [kernel(10, 100, 1)],
    }
    profile = Profile(trace_of(**tables))
    assert path(profile) == [
        ("op", "mm", 5), ("launch", "k1", 5), ("kernel", "k1", 90), ("sync", "k1", 3),
        ("host", None, 27), ("op", "relu", 20),
    ]  # fmt: skip
    assert NO_SYNCS in notes(profile)
    # the call's own time is the 3 that were left once the kernel had ended: it does not hold up the rest
    assert saved(profile, kernels={"k1": 0.5}) == 45
    told = Profile(
        trace_of(
            **tables,
            syncs=[{"process": 0, "device": 0, "kind": "Context Sync", "start": 21, "end": 100,
                    "correlation": 2}],
        )
    )  # fmt: skip
    assert path(told) == path(profile)
    assert NO_SYNCS not in notes(told)


def test_what_a_synchronising_call_takes_by_itself_is_that_of_one_that_need_not_wait(trace_of):
    profile = Profile(
        trace_of(
            calls=[
                launch(5, 1),
                call("cudaDeviceSynchronize", 20, 103, 2),
                call("cudaDeviceSynchronize", 110, 112, 3),
            ],
            kernels=[kernel(10, 100, 1)],
        )
    )
    # the kernel ends at 55: the call returns 3 later
    assert saved(profile, kernels={"k1": 0.5}) == 45
    # the call takes at least 2: 20 + 2 in place of 103
    assert saved(profile, kernels={"k1": 0}) == 81


def test_a_call_waits_for_the_stream_it_names_alone(trace_of):
    def of(stream: int) -> Profile:
        return Profile(
            trace_of(
                calls=[
                    launch(0, 1), launch(10, 2), call("cudaStreamSynchronize", 20, 60, 3),
                    launch(70, 4),
                ],
                kernels=[kernel(5, 50, 1, 7), kernel(15, 58, 2, 8), kernel(75, 200, 4, 7)],
                syncs=[{"process": 0, "device": 0, "stream": stream, "kind": "Stream Sync",
                        "start": 21, "end": 60, "correlation": 3}],
            )
        )  # fmt: skip

    assert ("kernel", "k1", 45) in path(of(7))
    assert ("kernel", "k2", 43) in path(of(8))


def test_a_stream_that_the_trace_does_not_name_is_that_whose_work_ended_in_the_call(trace_of):
    profile = Profile(
        trace_of(
            calls=[
                launch(0, 1), launch(10, 2), call("cudaStreamSynchronize", 20, 60, 3),
            ],
            kernels=[kernel(5, 50, 1, 7), kernel(15, 58, 2, 8)],
        )
    )  # fmt: skip
    assert path(profile)[-2:] == [("kernel", "k2", 43), ("sync", "k2", 2)]


def test_a_copy_that_the_host_waited_for_is_on_the_path(trace_of):
    def of(returned: int) -> Profile:
        return Profile(
            trace_of(
                ranges=[op("item", 0, 200)],
                calls=[launch(0, 1), call("cudaMemcpyAsync", 10, returned, 2)],
                kernels=[kernel(5, 50, 1)],
                memops=[copy(52, 60, 2)],
            )
        )

    assert ("copy", "memcpy DtoH", 8) in path(of(65))
    assert ("copy", "memcpy DtoH", 8) not in path(of(20))  # the call returned long before it


def test_a_stream_waits_for_the_event_of_another(trace_of):
    tables = {
        "calls": [
            launch(0, 1), call("cudaEventRecord", 6, 7, 2),
            call("cudaStreamWaitEvent", 8, 9, 3), launch(10, 4), launch(20, 5),
        ],
        "kernels": [kernel(5, 80, 1, 7), kernel(81, 90, 4, 8), kernel(25, 30, 5, 9)],
    }  # fmt: skip
    wait = {"process": 0, "device": 0, "stream": 8, "kind": "Stream Wait Event", "start": 8, "end": 9,
            "correlation": 3}  # fmt: skip
    told = Profile(trace_of(**tables, syncs=[{**wait, "record": 2, "event_stream": 7}]))
    expected = [
        ("launch", "k1", 5), ("kernel", "k1", 75), ("unexplained", "k4", 1), ("kernel", "k4", 9),
    ]  # fmt: skip
    assert path(told) == expected
    assert saved(told, kernels={"k1": 0}) > 0
    assert NO_EVENT not in notes(told)
    # without the records it is inferred from the end just before, and said so
    inferred = Profile(trace_of(**tables))
    assert path(inferred) == expected
    assert any("just before" in note for note in notes(inferred))
    # a wait whose record is missing is said to be missing
    assert NO_EVENT in notes(Profile(trace_of(**tables, syncs=[wait])))


def test_the_main_thread_waits_for_autograd_s_thread(trace_of):
    profile = Profile(
        trace_of(
            ranges=[
                step(0, 0, 100), op("forward", 10, 20), op("backward", 30, 70, thread=2),
                op("optimizer", 80, 90),
            ],
        )
    )  # fmt: skip
    assert path(profile) == [
        ("host", None, 10), ("op", "forward", 10), ("host", None, 10), ("op", "backward", 40),
        ("host", None, 10), ("op", "optimizer", 10), ("host", None, 10),
    ]  # fmt: skip
    assert FOLLOWS_MAIN in notes(profile)
    assert saved(profile, ops={"backward": 0}) == 40
    assert saved(profile, ops={"forward": 0.5}) == 5
    assert profile.what_if(ops={"backward": 0.25})["new_wall_time"].to_list() == [70, 70]


def test_a_thread_beside_a_busy_main_thread_is_not_waited_for(trace_of):
    profile = Profile(trace_of(ranges=[op("main", 0, 100), op("side", 30, 70, thread=2)]))
    assert path(profile) == [("op", "main", 100)]
    assert saved(profile, ops={"side": 0}) == 0
    # but what it does begins when the main thread gets there
    profile = Profile(trace_of(ranges=[op("main", 0, 60), op("side", 30, 90, thread=2)]))
    assert path(profile) == [("op", "main", 30), ("op", "side", 60)]
    assert saved(profile, ops={"main": 0}) == 30


def test_a_graph_s_kernels_follow_its_launch_and_their_stream(trace_of):
    profile = Profile(
        trace_of(
            ranges=[op("replay", 0, 12)],
            calls=[call("cudaGraphLaunch", 2, 10, 1)],
            kernels=[
                kernel(20, 50, 1, graph=3, graph_node=1),
                kernel(51, 80, 1, graph=3, graph_node=2),
            ],
        )
    )
    assert [kind for kind, _, _ in path(profile)] == ["op", "launch", "kernel", "gap", "kernel"]


def test_parallel_work_of_one_stream_is_joined_by_what_follows_the_longest(trace_of):
    profile = Profile(
        trace_of(
            calls=[call("cudaGraphLaunch", 0, 3, 1)],
            kernels=[kernel(5, 100, 1), kernel(10, 20, 1), kernel(101, 110, 1)],
        )
    )
    assert ("kernel", "k1", 95) in path(profile)


def test_ranks_meet_in_a_collective(trace_of):
    def nccl(process: int, start: int, end: int) -> dict:
        return {"process": process, "device": process, "stream": 9, "name": "ncclDevKernel_AllReduce_Sum_f32",
                "start": start, "end": end, "correlation": 2}  # fmt: skip

    def rank(process: int) -> dict:
        return {"process": process, "pid": 100 + process, "rank": process, "world_size": 2,
                "clock_domain": 0, "host": "one"}  # fmt: skip

    text = 'c10d::allreduce_([f32[4]], _) -> ([=0], _) {process_group="0"}'
    late = 60
    trace = trace_of(
        processes=[rank(0), rank(1)],
        clocks=[{"clock_domain": 0, "kind": "unix", "machine": "one"}],
        ranges=[
            {
                **op("x", start, start + 6),
                "process": process,
                "text": text,
                "category": "communication",
            }
            for process, start in ((0, 0), (1, late))
        ],
        calls=[
            {**launch(1, 2), "process": 0},
            {**launch(late + 1, 2), "process": 1},
        ],
        kernels=[nccl(0, 5, 90), nccl(1, late + 5, 91)],
    )
    assert (made(trace).kind == MEET).any()
    unnamed = trace.replace(
        ranges=trace["ranges"].with_columns(
            pl.lit("c10d::allreduce_()").cast(pl.Categorical).alias("text")
        )
    )
    assert NOT_MATCHED in made(unnamed).notes
    assert NOT_MATCHED not in made(trace).notes
    profile = Profile(trace)
    # the path is the late rank's, on which the other one waited
    kinds = profile.critical_path().group_by("kind", "process").agg(pl.col("duration").sum())
    assert {(kind, process): time for kind, process, time in kinds.rows()} == {
        ("host", 1): 60, ("op", 1): 1, ("launch", 1): 4, ("communication", 1): 26,
    }  # fmt: skip
    # without transfer both ranks leave when the late one enters
    assert saved(profile, communication=0) == 91 - 66


# parts and wholes


def test_steps_have_their_own_rows(trace_of):
    profile = Profile(
        trace_of(ranges=[step(0, 0, 50), op("a", 10, 20), step(1, 50, 90), op("b", 60, 80)])
    )
    rows = profile.critical_totals("step").select("step", "kind", "time").rows()
    assert rows == [(0, "host", 40), (0, "op", 10), (1, "host", 20), (1, "op", 20)]
    rows = profile.what_if(ops={"b": 0.5}).select("step", "wall_time", "new_wall_time").rows()
    assert rows == [(None, 90, 80), (0, 50, 50), (1, 40, 30)]


def test_a_profile_without_events_has_no_path(trace_of):
    for trace in (trace_of(), trace_of(processes=[{"process": 0}])):
        profile = Profile(trace)
        assert profile.critical_path().is_empty()
        assert profile.critical_totals("op").is_empty()
        assert profile.what_if(copies=0).is_empty()


def test_kernels_alone_are_a_path_with_what_the_trace_does_not_explain(trace_of):
    profile = Profile(trace_of(kernels=[kernel(10, 20, None), kernel(50, 90, None)]))
    assert path(profile) == [
        ("kernel", "kNone", 10),
        ("unexplained", "kNone", 30),
        ("kernel", "kNone", 40),
    ]


def test_user_ranges_alone_are_the_host_s_time(trace_of):
    mine = {
        "process": 0,
        "thread": 1,
        "domain": "opscope.user",
        "text": "mine",
        "start": 3,
        "end": 9,
    }
    assert path(Profile(trace_of(ranges=[mine]))) == [("host", None, 6)] or path(
        Profile(trace_of(ranges=[mine]))
    ) == [("op", "mine", 6)]


@pytest.mark.parametrize(
    "change",
    [{"copies": -1}, {"host": float("nan")}, {"launches": float("inf")}, {"ops": {"mm": 1001}},
     {"ops": {"nosuch": 0}}, {"kernels": {"mm": 0}}],
)  # fmt: skip
def test_a_change_that_means_nothing_is_refused(trace_of, change):
    profile = Profile(
        trace_of(ranges=[op("mm", 0, 9)], calls=[launch(1, 1)], kernels=[kernel(5, 9, 1)])
    )
    with pytest.raises(ValueError, match=r"factor|no (op|kernel) named"):
        profile.what_if(**change)


def test_the_innermost_named_op_decides(trace_of):
    profile = Profile(trace_of(ranges=[op("outer", 0, 100), op("inner", 20, 60)]))
    assert saved(profile, ops={"outer": 0}) == 100
    assert saved(profile, ops={"outer": 0, "inner": 1}) == 60
    assert saved(profile, ops={"*": 0.5, "inner": 0}) == 30 + 40
    with pytest.raises(NothingSelected, match="no op named 'mid'"):
        profile.what_if(ops={"mid": 0})


def test_an_unknown_division_is_refused(trace_of):
    with pytest.raises(ValueError, match=r"by: no value named .colour.; choose from: kind, op"):
        Profile(trace_of()).critical_totals("colour")


# laws, on traces that no program would make


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Any events at all: threads, launches, waits, copies and events on two devices, in any order."""
    moment = st.integers(0, 300)
    size = st.integers(0, 60)
    ranges, calls, kernels, memops, syncs = [], [], [], [], []
    for number in range(draw(st.integers(0, 8))):
        start = draw(moment)
        ranges.append(op(f"op{number % 3}", start, start + draw(size), draw(st.integers(1, 3))))
    if draw(st.booleans()):
        ranges.append(step(0, 20, 150))
    names = [
        "cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemcpy", "cudaDeviceSynchronize",
        "cudaStreamSynchronize", "cudaEventSynchronize", "cudaStreamWaitEvent", "cudaEventRecord", "cudaFree",
    ]  # fmt: skip
    for number in range(draw(st.integers(0, 14))):
        start, name = draw(moment), draw(st.sampled_from(names))
        calls.append(call(name, start, start + draw(size), number, draw(st.integers(1, 3))))
        at = draw(moment)
        where = {"device": draw(st.integers(0, 1)), "stream": draw(st.integers(1, 3))}
        if "Memcpy" in name:
            memops.append({**copy(at, at + draw(size), number), **where})
        elif "Launch" in name or draw(st.booleans()):
            kernels.append({**kernel(at, at + draw(size), number), **where})
        if "Sync" in name or "Wait" in name:
            kind = draw(
                st.sampled_from(["Context Sync", "Stream Sync", "Event Sync", "Stream Wait Event"])
            )
            syncs.append({**where, "process": 0, "kind": kind, "start": start, "end": start + 1,
                          "correlation": number, "record": draw(st.integers(0, 14)),
                          "event_stream": draw(st.integers(1, 3))})  # fmt: skip
    tables = {"ranges": ranges, "calls": calls, "kernels": kernels, "memops": memops}
    if draw(st.booleans()):
        tables["syncs"] = syncs
    frames = {}
    for name, rows in tables.items():
        schema = table_schema(name)
        columns = {key: schema[key] for row in rows for key in row}
        frames[name] = pl.DataFrame(
            [{key: row.get(key) for key in columns} for row in rows], schema=columns or schema
        )
    frames["ranges"] = frames["ranges"].with_columns(pl.Series("id", range(len(ranges)), pl.Int64))
    return Trace.of(frames)


def slow(graph: Graph, duration: np.ndarray, weight: np.ndarray, delay: np.ndarray) -> list[int]:
    """The longest path to each node, node by node, by the definition."""
    into: dict[int, list[int]] = {}
    for edge, target in enumerate(graph.target.tolist()):
        into.setdefault(target, []).append(edge)
    found: dict[int, int] = {}

    def reach(node: int) -> int:
        if node not in found:
            candidates = []
            if not graph.first[node]:
                before = reach(node - 1)
                candidates.append(before + max(int(duration[node - 1] + weight[node]), 0))
            elif graph.rooted[node]:
                candidates.append(max(int(weight[node]), 0))
            for edge in into.get(node, ()):
                source = int(graph.source[edge])
                candidates.append(reach(source) + int(duration[source]) + int(delay[edge]))
            found[node] = max(candidates)
        return found[node]

    return [reach(node) for node in range(len(graph))]


@given(traces())
def test_the_pieces_cover_the_window_and_each_moment_once(trace):
    profile = Profile(trace)
    pieces = profile.critical_path()
    assert pieces["duration"].sum() == (profile.summary()["wall_time"][0] or 0)
    assert pieces["start"].to_list()[1:] == pieces["end"].to_list()[:-1]
    assert (pieces["duration"] > 0).all()
    for by in ("kind", "op", "layer", "step"):
        assert profile.critical_totals(by)["time"].sum() == pieces["duration"].sum()


@given(traces(), st.data())
def test_the_replay_is_the_longest_path(trace, data):
    graph = Profile(trace).of(full_graph)
    if graph is None or not len(graph):
        return
    same = replay(graph, graph.duration, graph.weight, graph.delay)
    assert same.tolist() == graph.time.tolist()
    assert wall(graph, same, graph.duration) == graph.high - graph.low
    assert slow(graph, graph.duration, graph.weight, graph.delay) == graph.time.tolist()
    factors = data.draw(
        st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=len(graph), max_size=len(graph))
    )
    duration = (graph.duration * np.array(factors)).astype(np.int64)
    expected = slow(graph, duration, graph.weight, graph.delay)
    assert replay(graph, duration, graph.weight, graph.delay).tolist() == expected
    # the critical path is a longest one: what its nodes took adds up to the end
    nodes = path_nodes(graph)[::-1].tolist()
    total = 0
    for before, node in zip([None, *nodes[:-1]], nodes, strict=True):
        edge = int(graph.bound[node])
        if edge >= 0:
            assert graph.source[edge] == before
            total += int(graph.duration[before] + graph.delay[edge])
        elif edge == IN_LANE:
            assert before == node - 1
            total += max(int(graph.duration[before] + graph.weight[node]), 0)
        else:
            assert before is None
            total += int(graph.weight[node])
    assert total + int(graph.duration[nodes[-1]]) == int(graph.finish.max())


@pytest.mark.parametrize("small", [0, 3, 1 << 30])
@given(trace=traces())
def test_nodes_one_at_a_time_and_in_passes_give_the_same(small, trace):
    from opscope.core.analysis.critical import passes as module

    graph = Profile(trace).of(full_graph)
    if graph is None or not len(graph):
        return
    usual, module._SMALL = module._SMALL, small
    try:
        found = replay(graph, graph.duration // 3, graph.weight // 2, graph.delay)
    finally:
        module._SMALL = usual
    assert found.tolist() == slow(graph, graph.duration // 3, graph.weight // 2, graph.delay)


CHANGES = st.fixed_dictionaries(
    {
        name: st.sampled_from([0.0, 0.25, 0.7, 1.0])
        for name in ("copies", "launches", "host", "communication")
    }
)


@given(traces(), CHANGES, st.sampled_from([0.0, 0.5, 1.0]))
def test_less_work_saves_no_more_than_is_removed_and_never_costs(trace, change, kernels):
    profile = Profile(trace)
    if len(trace["kernels"]):
        change = {**change, "kernels": {"*": kernels}}
    if len(profile.ops()):
        change = {**change, "ops": {"*": 0.5}}
    rows = profile.what_if(**change)
    if rows.is_empty():
        return
    whole = rows.row(0, named=True)
    assert 0 <= whole["saving"] <= whole["removed_time"]
    assert whole["wall_time"] == profile.summary()["wall_time"][0]
    less = profile.what_if(**{**change, "host": change["host"] / 2, "copies": change["copies"] / 2})
    assert less["new_wall_time"][0] <= whole["new_wall_time"]
    assert profile.what_if()["saving"].to_list() == [0] * len(rows)
