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
    assert "CPU time" not in [one["what"] for one in table.rows]
    assert any("newchip_activity" in note and "left out" in note for note in table.footnotes)


def test_what_the_host_did_under_any_category_is_no_kernel(traced):
    profile = traced(event("newchip_host", "enqueue", 110, 5, 4242, 7, correlation=3))
    assert profile.cpu_only
    assert profile.summary()["device_time"].item() == 50_000
