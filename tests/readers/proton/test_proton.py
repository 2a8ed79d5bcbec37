"""What Triton's Proton writes: trees of totals in JSON and MessagePack, and Chrome traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

import opscope
from opscope.errors import BadInput
from opscope.readers import format_of
from opscope.readers.proton import tree

FORMAT = "Triton's Proton"
DEVICE = {
    "arch": "90",
    "bus_width": 6144,
    "clock_rate": 1980000,
    "memory_clock_rate": 2619000,
    "num_sms": 132,
}


def frame(name: str, *children: dict[str, Any], **metrics: Any) -> dict[str, Any]:
    """A node with its keys in the order in which Proton's JSON has them."""
    return {
        "children": list(children),
        "frame": {"name": name, "type": "function"},
        "metrics": metrics,
    }


def kernel(name: str, count: int, time: int, **more: Any) -> dict[str, Any]:
    return frame(
        name, **{"count": count, "device_id": "0", "device_type": "CUDA", "time (ns)": time, **more}
    )


def document() -> list[Any]:
    """Two scopes, one within the other; of a kernel whose time is not a multiple of its launches."""
    inner = frame("attention", kernel("flash", 3, 1000))
    root = frame(
        "ROOT",
        frame("forward", kernel("matmul", 10, 1_230_000), inner, flops16=1e12),
        count=0,
        **{"time (ns)": 0},
    )
    return [root, {"CUDA": {"0": DEVICE}}]


def chrome() -> dict[str, Any]:
    def lane(tid: int, name: str) -> dict[str, Any]:
        return {"ph": "M", "pid": 0, "tid": tid, "name": "thread_name", "args": {"name": name}}

    def slice_(cat: str, name: str, tid: int, ts: float, dur: float) -> dict[str, Any]:
        stack = {"call_stack": ["ROOT", name]}
        return {
            "ph": "X",
            "cat": cat,
            "name": name,
            "pid": 0,
            "tid": tid,
            "ts": ts,
            "dur": dur,
            "args": stack,
        }

    events = [
        lane(10, "CPU Thread 4001"),
        lane(20, "GPU Stream 7"),
        slice_("scope", "forward", 10, 0.0, 50.5),
    ]
    for number in range(5):
        at = 5.0 + 8 * number
        arrow = {"name": "launch->kernel", "cat": "flow", "pid": 0, "id": number, "bp": "e"}
        events += [
            slice_("scope", "step", 10, at, 2.0),
            {**arrow, "ph": "s", "tid": 10, "ts": at},
            {**arrow, "ph": "f", "tid": 20, "ts": at + 3},
            slice_("kernel", "matmul_kernel", 20, at + 3, 4.25),
        ]
    return {"displayTimeUnit": "us", "traceEvents": events}


def seeds(folder: Path) -> list[Path]:
    """Write a file of each form."""
    made = {
        "a.hatchet": json.dumps(document()).encode(),
        "b.hatchet_msgpack": msgspec.msgpack.encode(document()),
        "c.chrome_trace": json.dumps(chrome()).encode(),
    }
    for name, content in made.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in made]


@pytest.mark.parametrize("name", ["a.hatchet", "b.hatchet_msgpack"])
def test_a_tree_is_its_launches_in_its_scopes_with_exact_sums(name, tmp_path):
    seeds(tmp_path)
    assert format_of(tmp_path / name) == "proton"
    profile = opscope.load(tmp_path / name)
    totals = profile.kernel_totals().select("name", "calls", "total").sort("name")
    assert totals.rows() == [("flash", 3, 1000), ("matmul", 10, 1_230_000)]
    ranges = profile.range_totals().select("range", "kernels", "device_time")
    assert sorted(ranges.filter(pl.col("range").is_not_null()).rows()) == [
        ("attention", 3, 1000),
        ("forward", 10, 1_230_000),
    ]
    device = profile.trace["devices"].row(0, named=True)
    assert (device["cc"], device["sm_count"], device["clock_khz"]) == ("9.0", 132, 1980000)
    assert device["mem_bandwidth"] == 2 * 2619000 * 1000 * 6144 // 8
    assert "totals and no times" in profile.trace["notes"]["what"][0]


def test_a_chrome_trace_has_kernels_with_launches_in_scopes(tmp_path):
    path = seeds(tmp_path)[2]
    assert format_of(path) == "proton"
    profile = opscope.load(path)
    kernels = profile.trace["kernels"]
    assert kernels.select("device", "stream", "start", "end").row(0) == (0, 7, 8000, 12_250)
    calls = profile.trace["calls"]
    assert calls.select("thread", "start", "end").row(0) == (4001, 5000, 5001)
    assert calls["correlation"].to_list() == kernels["correlation"].to_list()
    totals = profile.range_totals().filter(pl.col("range") == "step")
    assert totals.select("kernels", "device_time").rows() == [(5, 5 * 4250)]


@pytest.mark.parametrize("odd", [True, 2.5, None, [1]])
def test_what_names_no_thread_and_no_arrow_joins_nothing(odd, tmp_path):
    path = tmp_path / "c.chrome_trace"
    value = chrome()
    for event in value["traceEvents"]:
        if event["ph"] in ("s", "f"):
            event["id"] = odd
        elif event["ph"] == "X" and event["cat"] == "scope":
            event["tid"] = odd
    path.write_text(json.dumps(value))
    trace = opscope.load(path).trace
    assert len(trace["kernels"]) == 5
    assert trace["kernels"]["correlation"].null_count() == 5
    assert not len(trace["calls"])
    assert set(trace["ranges"]["thread"].to_list()) == {0}


def test_very_many_launches_are_one_row_a_kernel(tmp_path, monkeypatch):
    monkeypatch.setattr(tree, "_MOST", 12)
    path = seeds(tmp_path)[0]
    kernels = opscope.load(path).trace["kernels"]
    assert (kernels["end"] - kernels["start"]).to_list() == [1_230_000, 1000]


def test_a_deep_or_wide_tree_is_bounded(tmp_path, monkeypatch):
    deep = kernel("k", 1, 5)
    for number in range(400):
        deep = frame(f"f{number}", deep)
    path = tmp_path / "a.hatchet"
    path.write_bytes(msgspec.msgpack.encode([deep]))
    with pytest.raises(BadInput, match="without times of kernels"):
        opscope.load(path)
    monkeypatch.setattr(tree, "_MOST_NODES", 50)
    with pytest.raises(BadInput, match="more than 50 frames"):
        opscope.load(path)


def test_cycles_and_samples_are_no_times(tmp_path):
    path = tmp_path / "a.hatchet"
    path.write_text(
        json.dumps([frame("ROOT", frame("k", **{"cycles": 5, "normalized_cycles": 2.5}))])
    )
    with pytest.raises(BadInput, match="without times of kernels: instruction samples or cycles"):
        opscope.load(path)


def test_the_inside_of_kernels_is_refused_by_name(tmp_path):
    path = tmp_path / "a.chrome_trace"
    events = [
        {"ph": "X", "cat": "add", "name": "load", "pid": "add Core0 CTA3", "tid": "warp 2", "ts": 1, "dur": 1,
         "args": {"call_stack": []}}
    ]  # fmt: skip
    path.write_text(json.dumps({"traceEvents": events}))
    with pytest.raises(BadInput, match="the inside of kernels"):
        opscope.load(path)


def test_wrong_values_cost_their_rows(tmp_path):
    value = document()
    value[0]["children"][0]["children"] += [kernel("bad", -1, 5), kernel("odd", "x", 5), 7]  # type: ignore[arg-type]
    path = tmp_path / "a.hatchet"
    path.write_text(json.dumps(value))
    trace = opscope.load(path).trace
    assert len(trace["kernels"]) == 13
    assert (
        dict(trace["notes"].select("what", "how_many").rows())[
            "totals that cannot be read, left out"
        ]
        == 2
    )


def test_the_public_case_is_read_right(shared):
    folder = shared.parent / "cases/proton_hatchet"
    totals = opscope.load(folder / "matmul.hatchet").kernel_totals()
    assert totals.select("name", "calls", "total").rows() == [("matmul_kernel", 10, 1_230_000)]
    trace = opscope.load(folder / "proton.chrome_trace").trace
    assert trace["kernels"].select("device", "stream").unique().rows() == [(0, 0)]
