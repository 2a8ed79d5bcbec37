"""CUDA graphs: replayed kernels go to the ops that captured them, or say why not."""

from __future__ import annotations

import pytest

from opscope.core.attribution.attribute import GIVEN_BY_ORDER, GIVEN_TO_REGION, REASONS, attribute
from opscope.profile import Profile

NOT_CAPTURED = "replayed from a CUDA graph whose capture is not in the trace"


def op(name: str, start: int, end: int, **more: object) -> dict:
    base = {"process": 0, "thread": 1, "domain": "opscope.torch", "kind": "pushpop"}
    return {**base, "text": f"{name}()", "start": start, "end": end, **more}


def call(name: str, start: int, correlation: int, **more: object) -> dict:
    base = {"process": 0, "thread": 1, "name": name, "end": start + 1}
    return {**base, "start": start, "correlation": correlation, **more}


def kernel(start: int, correlation: int, **more: object) -> dict:
    return {"process": 0, "device": 0, "name": "k", "start": start, "end": start + 5,
            "correlation": correlation, **more}  # fmt: skip


RANGES = [op("mm", 10, 20), op("add", 20, 30), op("replay", 100, 110)]
CAPTURE = [
    call("cudaStreamBeginCapture_v10000", 1, 1),
    call("cudaLaunchKernel", 12, 2),
    call("cuLaunchKernel", 22, 3),
    call("cudaStreamEndCapture_v10000", 40, 4),
]


def owners(trace) -> list[tuple[str | None, str | None, bool]]:
    result = attribute(trace)
    found = []
    for row, reason, inferred in zip(
        result.kernels.op, result.kernels.reason, result.kernels.inferred, strict=True
    ):
        text = trace["ranges"]["text"].cast(str)[int(row)] if row >= 0 else None
        found.append((text, REASONS[reason], bool(inferred)))
    return found


@pytest.mark.parametrize("replays", [1, 3])
def test_by_order_within_one_process(trace_of, replays):
    launches = [call("cudaGraphLaunch_v10000", 100 + n, 50 + n) for n in range(replays)]
    kernels = [kernel(200 + 100 * n + 10 * k, 50 + n) for n in range(replays) for k in range(2)]
    trace = trace_of(ranges=RANGES, calls=CAPTURE + launches, kernels=kernels)
    assert owners(trace) == [("mm()", None, True), ("add()", None, True)] * replays


def test_a_replay_without_its_capture_is_not_given_to_who_replayed_it(trace_of):
    trace = trace_of(
        ranges=RANGES,
        calls=[call("cudaGraphLaunch", 101, 50)],
        kernels=[kernel(200, 50), kernel(210, 50)],
    )
    assert owners(trace) == [(None, NOT_CAPTURED, False)] * 2


def test_a_capture_of_another_length_does_not_fit(trace_of):
    trace = trace_of(
        ranges=RANGES,
        calls=[*CAPTURE, call("cudaGraphLaunch", 101, 50)],
        kernels=[kernel(200 + n, 50) for n in range(3)],
    )
    assert owners(trace) == [(None, NOT_CAPTURED, False)] * 3


def test_the_capture_may_be_in_another_trace_if_only_one_fits(trace_of):
    there = [{**c, "process": 7} for c in CAPTURE]
    ranges = [{**r, "process": 7} for r in RANGES[:2]]
    launch = call("hipGraphLaunch", 101, 50)
    kernels = [kernel(200, 50), kernel(210, 50)]
    trace = trace_of(ranges=ranges, calls=[*there, launch], kernels=kernels)
    assert owners(trace) == [("mm()", None, True), ("add()", None, True)]
    twice = [{**c, "process": 8, "correlation": c["correlation"] + 20} for c in CAPTURE]
    trace = trace_of(ranges=ranges, calls=[*there, *twice, launch], kernels=kernels)
    assert owners(trace) == [(None, NOT_CAPTURED, False)] * 2


def test_node_creation_events_beat_the_order(trace_of):
    nodes = [
        {"process": 0, "graph": 1, "node": 1001, "thread": 1, "time": 22},
        {"process": 0, "graph": 1, "node": 1002, "thread": 1, "time": 12},
        # instantiation clones the nodes, later and outside any op
        {"process": 0, "graph": 2, "node": 2001, "original_node": 1001, "thread": 1, "time": 41},
        {"process": 0, "graph": 2, "node": 2002, "original_node": 1002, "thread": 1, "time": 42},
    ]
    trace = trace_of(
        ranges=RANGES,
        calls=[*CAPTURE, call("cudaGraphLaunch", 101, 50)],
        kernels=[kernel(200, 50, graph_node=2001), kernel(210, 50, graph_node=2002)],
        graph_nodes=nodes,
    )
    assert owners(trace) == [("add()", None, False), ("mm()", None, False)]


def test_kernels_launched_beside_the_graph_are_their_own(trace_of):
    trace = trace_of(
        ranges=RANGES,
        calls=[*CAPTURE, call("cudaGraphLaunch", 101, 50), call("cudaLaunchKernel", 105, 51)],
        kernels=[kernel(200, 50), kernel(205, 51), kernel(210, 50)],
    )
    assert owners(trace) == [("mm()", None, True), ("replay()", None, False), ("add()", None, True)]


def test_a_compiled_region_that_replays_its_own_graph_has_the_kernels(trace_of):
    region = op("x", 100, 110, text="CompiledFunction(f32[2])")
    trace = trace_of(
        ranges=[region],
        calls=[call("cudaGraphLaunch", 101, 50)],
        kernels=[kernel(200, 50), kernel(210, 50)],
    )
    assert owners(trace) == [("CompiledFunction(f32[2])", None, True)] * 2


def test_every_replay_does_the_whole_work_of_the_captured_op(trace_of):
    launches = [call("cudaGraphLaunch", 100 + n, 50 + n) for n in range(3)]
    mm = op("x", 10, 30, text="aten::mm(f32[2,3], f32[3,4])")
    kernels = [kernel(200 + 100 * n + 10 * k, 50 + n) for n in range(3) for k in range(2)]
    profile = Profile(trace_of(ranges=[mm], calls=CAPTURE + launches, kernels=kernels))
    assert profile.kernels()["matrix_flops"].to_list() == [24] * 6  # 2 * 2*3*4, over two kernels


def named(what: str, number: int, start: int, end: int, **more: object) -> dict:
    return op("x", start, end, text=f"CUDA graph {number} {what}", category="graph", **more)


TWO_CAPTURES = [
    *CAPTURE,
    call("cudaStreamBeginCapture_v10000", 50, 5),
    call("cudaLaunchKernel", 62, 6),
    call("cudaLaunchKernel", 72, 7),
    call("cudaStreamEndCapture_v10000", 80, 8),
]
OTHERS = [op("sub", 60, 70), op("div", 70, 80)]


def test_a_replay_that_is_named_has_its_own_capture_not_the_latest(trace_of):
    replays = [
        named("replay", 1, 100, 110),
        named("replay", 2, 120, 130),
        named("replay", 1, 140, 150),
    ]
    trace = trace_of(
        ranges=[
            named("capture", 1, 5, 45),
            *RANGES[:2],
            named("capture", 2, 55, 85),
            *OTHERS,
            *replays,
        ],
        calls=[*TWO_CAPTURES, *(call("cudaGraphLaunch", 105 + 20 * n, 50 + n) for n in range(3))],
        kernels=[kernel(200 + 100 * n + 10 * k, 50 + n) for n in range(3) for k in range(2)],
    )
    first, second = (
        [("mm()", None, True), ("add()", None, True)],
        [("sub()", None, True), ("div()", None, True)],
    )
    assert owners(trace) == [*first, *second, *first]


def test_a_named_capture_has_what_all_threads_launched_in_it(trace_of):
    """The backward pass launches from autograd's own thread."""
    backward = [op("mm_backward", 30, 36, thread=2, category="backward")]
    elsewhere = call("cudaLaunchKernel", 15, 90, thread=3)  # ran at once: not captured
    trace = trace_of(
        ranges=[named("capture", 1, 5, 45), *RANGES[:2], *backward, named("replay", 1, 100, 110)],
        calls=[
            *CAPTURE, call("cudaLaunchKernel", 32, 9, thread=2), elsewhere,
            call("cudaGraphLaunch", 105, 50),
        ],
        kernels=[kernel(18, 90), *(kernel(200 + 10 * k, 50) for k in range(3))],
    )  # fmt: skip
    assert owners(trace)[1:] == [(f"{name}()", None, True) for name in ("mm", "add", "mm_backward")]


def test_a_named_capture_of_another_length_is_not_guessed_at(trace_of):
    trace = trace_of(
        ranges=[named("capture", 1, 5, 45), *RANGES[:2], *OTHERS, named("replay", 1, 100, 110)],
        calls=[*TWO_CAPTURES, call("cudaLaunchKernel", 75, 10), call("cudaGraphLaunch", 105, 50)],
        kernels=[kernel(200 + n, 50) for n in range(3)],
    )  # fmt: skip
    # another capture has three launches, yet the name says that it is not this graph's
    assert owners(trace) == [(None, NOT_CAPTURED, False)] * 3


def test_a_replayed_kernel_is_of_the_step_that_replays_it(trace_of):
    steps = [
        {"process": 0, "thread": 1, "domain": "opscope.step", "category": "step", "kind": "pushpop",
         "text": f"step {n}", "start": start, "end": start + 30}
        for n, start in enumerate((0, 100, 140))
    ]  # fmt: skip
    replays = [named("replay", 1, 105, 110), named("replay", 1, 145, 150)]
    trace = trace_of(
        ranges=[*steps, named("capture", 1, 5, 45), *RANGES[:2], *replays],
        calls=[*CAPTURE, call("cudaGraphLaunch", 106, 50), call("cudaGraphLaunch", 146, 51)],
        kernels=[kernel(200 + 100 * n + 10 * k, 50 + n) for n in range(2) for k in range(2)],
    )
    frame = Profile(trace).kernels()
    assert frame["step"].to_list() == [1, 1, 2, 2]
    assert frame["op"].cast(str).to_list() == ["mm", "add"] * 2


def test_what_a_region_was_given_is_said_and_marked(trace_of):
    """Without node ids, and with the capture elsewhere: each kernel is inferred, and a note counts them."""
    region = op("x", 100, 110, text='"Torch-Compiled Region: 0/0"()')
    profile = Profile(
        trace_of(
            ranges=[region, op("mm", 10, 20)],
            calls=[call("cudaGraphLaunch", 101, 50), call("cudaLaunchKernel", 12, 2)],
            kernels=[kernel(200, 50), kernel(210, 50), kernel(150, 2)],
        )
    )
    assert profile.kernels().sort("start")["inferred"].to_list() == [False, True, True]
    told = profile.notes().rows(named=True)
    assert [(row["severity"], row["what"], row["how_many"]) for row in told] == [
        ("warning", GIVEN_TO_REGION, 2)
    ]
    assert Profile(profile.trace).kernels()["inferred"].sum() == 2
    assert profile.notes()["how_many"].to_list() == [2], "said once"


def test_what_the_order_told_is_said(trace_of):
    launches = [call("cudaGraphLaunch_v10000", 100, 50)]
    kernels = [kernel(200, 50), kernel(210, 50)]
    profile = Profile(trace_of(ranges=RANGES, calls=CAPTURE + launches, kernels=kernels))
    assert profile.kernels()["inferred"].to_list() == [True, True]
    assert profile.notes()["what"].to_list() == [GIVEN_BY_ORDER]


def test_nothing_is_said_where_nodes_have_ids(trace_of):
    nodes = [{"process": 0, "graph": 1, "node": 7, "thread": 1, "time": 12}]
    profile = Profile(
        trace_of(
            ranges=RANGES,
            calls=[*CAPTURE, call("cudaGraphLaunch", 101, 50)],
            kernels=[kernel(200, 50, graph_node=7)],
            graph_nodes=nodes,
        )
    )
    assert profile.kernels()["inferred"].to_list() == [False]
    assert profile.notes().is_empty()


def test_copies_of_a_graph_whose_capture_is_not_there_have_no_op(trace_of):
    copy = {"process": 0, "device": 0, "kind": "DtoD", "start": 200, "end": 205, "correlation": 50}
    beside = {**copy, "start": 300, "end": 305, "correlation": 51}
    profile = Profile(
        trace_of(
            ranges=[op("replay", 100, 110)],
            calls=[call("cudaGraphLaunch", 101, 50), call("cudaMemcpyAsync", 103, 51)],
            memops=[copy, beside],
        )
    )
    assert (profile.attribution.memops.op >= 0).tolist() == [False, True]
    assert (
        profile.memops()["reason"].cast(str).to_list()[0].startswith("replayed from a CUDA graph")
    )
    assert profile.notes().is_empty()
