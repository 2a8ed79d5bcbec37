"""Kineto on devices that are neither NVIDIA's nor AMD's, by the categories their builds write."""

from __future__ import annotations

import json

import pytest

import opscope
from opscope.core.analysis.summary.summary_table import summary_table


def event(cat, name, ts, dur, pid, tid, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur,
            "args": args}  # fmt: skip


@pytest.fixture
def traced(tmp_path):
    """A profile of one op that launches what is given to it; beside it what every trace has."""

    def make(*events):
        own = [
            event("cpu_op", "aten::mm", 100, 50, 4242, 7),
            event("Trace", "PyTorch Profiler (0)", 0, 500, "Spans", "x", Op="x"),
            event("overhead", "Resource", 0, 5, -1, 0),
        ]
        path = tmp_path / "trace.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [*own, *events]}))
        return opscope.load(path)

    return make


@pytest.mark.parametrize(
    ("runtime", "device"),
    [
        ("mtia_runtime", "mtia_ccp_events"),
        ("xpu_runtime", "kernel"),
        ("privateuse1_driver", "kernel"),
        ("newchip_runtime", "newchip_activity"),
    ],
)
def test_what_runs_on_any_device_is_a_kernel_of_the_op_that_launched_it(traced, runtime, device):
    profile = traced(
        event(runtime, "launch", 110, 2, 4242, 7, correlation=1),
        event(device, "fc", 200, 5, 0, 3, correlation=1),
    )
    assert not profile.cpu_only
    row = profile.summary().row(0, named=True)
    assert (row["kernels"], row["kernel_time"], row["unattributed_time"]) == (1, 5000, 0)
    assert profile.kernels().select("name", "op", "device", "stream").row(0) == (
        "fc", "aten::mm", 0, 3,
    )  # fmt: skip


def test_a_category_that_is_taken_for_kernels_is_named(traced):
    profile = traced(event("newchip_activity", "fc", 200, 5, 0, 3, stream=3))
    (note,) = [row for row in profile.notes().to_dicts() if "newchip" in row["what"]]
    assert "counted as kernels" in note["what"]


def test_cpu_time_never_stands_in_for_a_device_that_was_left_out(traced):
    """No argument says that these ran on a device; that they are on no host's process does not deny it."""
    profile = traced(event("newchip_activity", "fc", 200, 5, 0, 3))
    assert not profile.cpu_only
    assert profile.summary()["device_time"].item() is None
    table = summary_table(profile)
    assert "elapsed time" not in [one["what"] for one in table.rows]
    assert any("newchip_activity" in note and "left out" in note for note in table.footnotes)


def test_what_the_host_did_under_any_category_is_no_kernel(traced):
    profile = traced(event("newchip_host", "enqueue", 110, 5, 4242, 7, correlation=3))
    assert profile.cpu_only
    assert profile.summary()["device_time"].item() == 50_000


def test_the_names_of_processes_need_no_time(traced):
    profile = traced(
        {"ph": "M", "name": "process_name", "pid": 4242, "args": {"name": "train.py"}},
        event("mtia_runtime", "launch", 110, 2, 4242, 7, correlation=1),
        event("mtia_ccp_events", "fc", 200, 5, 0, 3, correlation=1),
    )
    assert profile.trace["processes"]["name"].to_list() == ["train.py"]
    assert not any("without a time" in what for what in profile.notes()["what"])


def rocm(*events, **head):
    own = [
        event("cpu_op", "aten::mm", 100, 50, 42, 7, **{"External id": 5}),
        event("cpu_op", "aten::copy_", 200, 50, 42, 7, **{"External id": 6}),
        event("cuda_runtime", "hipLaunchKernel", 110, 5, 42, 7, **{"External id": 5}),
        event("cuda_runtime", "hipLaunchKernel", 120, 5, 42, 7, **{"External id": 5}),
        event("cuda_runtime", "hipMemcpyAsync", 210, 5, 42, 7, **{"External id": 6}),
        event("cuda_runtime", "hipDeviceSynchronize", 300, 5, 42, 7, **{"External id": 5}),
    ]
    return json.dumps({"schemaVersion": 1, **head, "traceEvents": [*own, *events]})


def test_work_without_correlation_ids_is_linked_by_the_id_of_its_op(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(
        rocm(
            event("kernel", "Cijk_b", 260, 20, 0, 7, device=0, stream=7, **{"External id": 5}),
            event("kernel", "Cijk_a", 230, 20, 0, 7, device=0, stream=7, **{"External id": 5}),
            event("kernel", "unknown", 290, 1, 0, 7, device=0, stream=7, **{"External id": 9}),
            event("gpu_memcpy", "CopyHostToDevice", 400, 30, 0, 7, device=0, stream=7, **{"External id": 6}),
        )
    )  # fmt: skip
    profile = opscope.load(path)
    kernels = profile.kernels().sort("start")
    assert kernels["op"].to_list() == ["aten::mm", "aten::mm", None]
    assert profile.memops()["op"].to_list() == ["aten::copy_"]
    calls = profile.trace["calls"].sort("start")["correlation"]
    assert calls.is_not_null().to_list() == [True, True, True, False], (
        "calls without work get no id"
    )
    assert calls[:2].to_list() == kernels["correlation"][:2].to_list()


def test_an_id_of_an_op_gives_way_to_a_correlation_id(tmp_path):
    """In most files the id of the op is a copy of the correlation id, or another op's."""
    path = tmp_path / "trace.json"
    path.write_text(
        rocm(
            event("cuda_runtime", "hipLaunchKernel", 220, 5, 42, 7, correlation=77),
            event("kernel", "k", 260, 20, 0, 7, device=0, correlation=77, **{"External id": 5}),
        )
    )
    assert opscope.load(path).kernels()["op"].to_list() == ["aten::copy_"]


@pytest.mark.parametrize(
    "calls", [(), (event("cuda_runtime", "cudaDeviceSynchronize", 400, 5, 4242, 7, correlation=9),)]
)
def test_a_gpu_that_got_no_work_leaves_the_cpu_s_times(tmp_path, calls):
    path = tmp_path / "trace.json"
    gpus = [
        {
            "id": 0,
            "name": "NVIDIA H100 80GB HBM3",
            "numSms": 132,
            "computeMajor": 9,
            "computeMinor": 0,
        }
    ]
    ops = [
        event("cpu_op", "aten::mm", 100, 50, 4242, 7),
        event("cpu_op", "aten::relu", 200, 30, 4242, 7),
    ]
    path.write_text(
        json.dumps({"schemaVersion": 1, "deviceProperties": gpus, "traceEvents": [*ops, *calls]})
    )
    profile = opscope.load(path)
    assert profile.cpu_only
    assert profile.summary()["device_time"].item() == 80_000
    assert any("no kernels were recorded" in what for what in summary_table(profile).footnotes)
    assert profile.trace["devices"].is_empty(), "the roof of a GPU is none of the CPU's ops"


def test_a_launch_alone_shows_that_the_gpu_got_work(traced):
    profile = traced(event("cuda_runtime", "cudaLaunchKernel", 110, 5, 4242, 7, correlation=9))
    assert not profile.cpu_only


def test_of_ranks_merged_into_one_file_work_that_nothing_tells_apart_has_that_reason(tmp_path):
    """Both processes launched with id 1 at one time; a device of each ran a kernel of that id."""
    events = [
        made
        for rank, busy in ((0, 100), (1, 900))
        for made in (
            event("cpu_op", "aten::mm", 10, 60, 500 + rank, 7),
            event("cuda_runtime", "cudaLaunchKernel", 20, 5, 500 + rank, 7, correlation=1),
            event(
                "kernel", f"of_{rank}", 2000, busy, rank, 7, device=rank, stream=7, correlation=1
            ),
        )
    ]
    path = tmp_path / "merged.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    profile = opscope.load(path)
    assert profile.unattributed()["reason"].to_list() == ["several launches share its id"]
    # one device is nine times as busy, but whose it is, and that they are of one job, nothing shows
    said = profile.advice().filter(detector="imbalanced_gpus")["reason"].item()
    assert "nothing shows that they are one job" in said
