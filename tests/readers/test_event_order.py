"""The order of the events in a file is no matter: whose file it is, and what it says, comes from all of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import opscope

PROFILES = Path(__file__).parent / "onnxruntime" / "profiles"
#: More events than the first bytes of a file hold, by which a format is recognised.
MANY = 60


def named(pid, what, name, **more):
    return {"ph": "M", "pid": pid, "tid": 0, "name": what, "args": {"name": name}, **more}


def span(pid, tid, name, ts, dur, **more):
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": ts, "dur": dur, **more}


def kineto() -> list[dict]:
    """Ops of torch.profiler, each with a launch and a kernel."""
    events = [named(0, "process_labels", "GPU 0"), named(7, "process_name", "python")]
    for number in range(MANY):
        t = 1000 + 100 * number
        events += [
            span(7, 8, "aten::mm", t, 50, cat="cpu_op", args={"Input Dims": [[8, 8], [8, 8]]}),
            span(7, 8, "cudaLaunchKernel", t + 10, 5, cat="cuda_runtime", args={"correlation": number}),
            span(0, 7, "gemm", t + 20, 60, cat="kernel",
                 args={"correlation": number, "device": 0, "stream": 7, "grid": [1, 1, 1]}),
        ]  # fmt: skip
    return events


def torch_npu() -> list[dict]:
    """``trace_view.json`` of torch_npu: ops of PyTorch, tasks of an Ascend, waits, collectives."""
    lanes = {4000: "Python", 4001: "CANN", 4002: "Ascend Hardware", 4003: "HCCL"}
    events = [named(pid, "process_name", name) for pid, name in lanes.items()]
    events.append(named(4003, "thread_name", "Group 0 Communication", tid=1))
    at = 1736408883600000
    events.append(span(4000, 11, "ProfilerStep#50", f"{at}.000", 90_000, cat="cpu_op", args={}))
    for number in range(MANY):
        t = at + 1000 * number
        events += [
            span(4000, 11, "aten::mm", f"{t}.000", 300, cat="cpu_op", args={"Input Dims": "8,8;8,8"}),
            span(4002, 2, "aclnnMm_MatMulV2", f"{t + 500}.000", 100.5,
                 args={"Task Type": "AI_CORE", "Physic Stream Id": 2, "Task Id": number}),
            span(4002, 2, "Notify Wait", f"{t + 601}.000", 300, args={"Task Type": "Notify Wait"}),
        ]  # fmt: skip
    events.append(span(4003, 1, "hcom_allReduce__586_0_1", f"{at + 70_000}.000", 9000, args={}))
    return events


def viewer() -> list[dict]:
    """The trace viewer's JSON of a TPU: programs, their operations, a collective."""
    events = [
        named(3, "process_name", "/device:TPU:0"),
        named(3, "thread_name", "XLA Ops", tid=3),
        named(3, "thread_name", "XLA Modules", tid=2),
        named(701, "process_name", "/host:CPU"),
    ]
    for number in range(MANY):
        t = 1000.0 * number
        wrote = {"hlo_category": "convolution fusion", "model_flops": "4096", "bytes_accessed": "98304",
                 "tf_op": "jit(step)/dot_general"}  # fmt: skip
        events += [
            span(3, 2, "jit_step(123)", t, 800.0, args={"run_id": str(number)}),
            span(3, 3, "fusion.1", t + 10, 500.0, args=wrote),
            span(3, 3, "all-reduce.2", t + 520, 200.0, args={"hlo_category": "all-reduce"}),
        ]
    return events


def sessions() -> list[dict]:
    """A session of ONNX Runtime."""
    found: list[dict] = json.loads((PROFILES / "cnn_1.31.json").read_text("utf-8"))
    return found


def as_array(events: list[dict]) -> str:
    return json.dumps(events)


def in_object(events: list[dict]) -> str:
    return json.dumps({"traceEvents": events})


TIMELINES: dict[str, tuple[Callable[[], list[dict]], Callable[[list[dict]], str]]] = {
    "kineto": (kineto, in_object),
    "kineto, an array": (kineto, as_array),
    "torch_npu": (torch_npu, as_array),
    "torch_npu, in an object": (torch_npu, in_object),
    "trace viewer": (viewer, in_object),
    "onnxruntime": (sessions, as_array),
}


def answers(path: Path) -> dict[str, object]:
    profile = opscope.load(path)
    notes = profile.notes().sort("what").rows()
    by_kind = profile.totals_by("kind").sort("kind").rows()
    ops = (
        profile.totals_by("op")
        .sort("device_time", "op", "direction")
        .select("op", "calls", "device_time")
    )
    return {
        "summary": profile.summary().rows(),
        "kinds": by_kind,
        "ops": ops.rows(),
        "notes": notes,
    }


@pytest.mark.parametrize("name", TIMELINES)
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 10_000))
def test_any_order_of_the_events_says_the_same(tmp_path, name, seed):
    make, write = TIMELINES[name]
    events = make()
    path = tmp_path / "run.json"
    path.write_text(write(events), "utf-8")
    expected = answers(path)
    random.Random(seed).shuffle(events)
    path.write_text(write(events), "utf-8")
    assert answers(path) == expected


@pytest.mark.parametrize("name", TIMELINES)
def test_names_of_processes_behind_all_events_say_the_same(tmp_path, name):
    make, write = TIMELINES[name]
    events = make()
    path = tmp_path / "run.json"
    path.write_text(write(events), "utf-8")
    expected = answers(path)
    events.sort(key=lambda event: event["ph"] == "M")
    path.write_text(write(events), "utf-8")
    assert answers(path) == expected


@pytest.mark.parametrize("name", ["trace_view.json", "run.json", "trace_view.json.gz"])
def test_tasks_of_an_ascend_are_work_and_its_waits_are_not(tmp_path, name):
    events = torch_npu()
    text = as_array(events[5:] + events[:5]).encode()
    if name.endswith(".gz"):
        import gzip

        text = gzip.compress(text)
    path = tmp_path / name
    path.write_bytes(text)
    profile = opscope.load(path)
    summary = profile.summary().row(0, named=True)
    assert (summary["kernels"], summary["kernel_time"]) == (MANY + 1, MANY * 100_500 + 9_000_000)
    assert (summary["waits"], summary["queues_waited"]) == (MANY, MANY * 300_000)
    by_kind = dict(profile.totals_by("kind").select("kind", "device_time").rows())
    assert by_kind == {"matrix products": MANY * 100_500, "communication": 9_000_000}
    assert profile.communication()["communication_time"].to_list() == [9_000_000]


def test_a_timeline_without_a_lane_of_a_device_is_the_cpu_s_whatever_its_name_is(tmp_path):
    """torch_npu calls its file ``trace_view.json`` too where it recorded the CPU alone."""
    events = [event for event in torch_npu() if event["pid"] == 4000]
    for event in events:
        if event["ph"] == "X":
            event["ts"] = float(event["ts"])
    path = tmp_path / "trace_view.json"
    path.write_text(as_array(events), "utf-8")
    profile = opscope.load(path)
    assert profile.cpu_only
    assert dict(profile.totals_by("op").select("op", "calls").rows())["aten::mm"] == MANY


def test_the_flops_that_xla_wrote_are_those_of_the_operation(tmp_path):
    path = tmp_path / "host.trace.json"
    path.write_text(in_object(viewer()), "utf-8")
    profile = opscope.load(path)
    row = profile.ops().filter(profile.ops()["op"] == "hlo::fusion:dot").row(0, named=True)
    assert row["matrix_flops"] == 4096
    assert row["bytes"] == 98_304
    assert dict(profile.totals_by("kind").select("kind", "device_time").rows()) == {
        "matrix products": MANY * 500_000,
        "communication": MANY * 200_000,
    }


@pytest.mark.parametrize("last", [False, True])
def test_a_folder_with_tasks_of_a_device_is_not_the_cpu_s(tmp_path, last):
    """The lane of the device may be named behind thousands of events of the CPU's."""
    host = [named(2, "process_name", "CPU OP"), *(
        span(2, 0, f"Default/Cast-op{number}", f"17000000000{number:05}.000", "4.000")
        for number in range(MANY)
    )]  # fmt: skip
    device = [
        named(6, "process_name", "Ascend Hardware"),
        span(
            6,
            2,
            "Default/MatMul-op1",
            "1700000000000010.000",
            "10.000",
            args={"Task Type": "AI_CORE"},
        ),
    ]
    folder = tmp_path / "host_1_20261128000000000_ascend_ms" / "ASCEND_PROFILER_OUTPUT"
    folder.mkdir(parents=True)
    events = [*host, *device] if last else [*device, *host]
    (folder / "trace_view.json").write_text(as_array(events), "utf-8")
    assert opscope.load(folder.parent).trace["kernels"]["name"].to_list() == ["MatMul-op1"]
