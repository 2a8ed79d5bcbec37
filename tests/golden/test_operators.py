"""Operators, modules and the call tree of real traces: beside a brute force, MindSpore's tables, and laws."""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from tests import traces

RESNET = "kineto/resnet50_nw{}_step_span1.pt.trace.json.gz"
#: The sum of the plug-in's "Device Self Duration" over its operator view, in µs (torch-tb-profiler 0.4.3).
PLUGIN = {0: 603_558, 4: 614_413}
#: Traces of each kind: with modules, stacks, CUDA graphs, two processes, a job, nvprof, markers, no launches,
#: no GPU.
FILES = (
    *("kineto/timesformer_h100.json.gz", "kineto/vllm_decode_cudagraph.json.gz", RESNET.format(0)),
    *("kineto/ddp_rank3of8_a100_stacks.json.gz", "nsys/fsdp_h100x2_2026.sqlite"),
    *(
        "nvprof/language_model.sqlite",
        "dlprof/nsys_profile.sqlite",
        "xplane/jax_conv_mi300.xplane.pb",
    ),
    *("nsys/multiprocessing_nogpu_2020.sqlite", "onnxruntime/resnet_inference_gemmini.json"),
    *("mindspore/mindinsight_run2_ascend910", "tensorrt/trex/resnet_pt_a100_fp16.profile.json"),
)


@cache
def events(path: Path) -> list[dict]:
    with gzip.open(path) as file:
        return [one for one in json.load(file)["traceEvents"] if one.get("ph") == "X"]


def by_hand(path: Path) -> dict[str, dict[str, float]]:
    """Times (µs) of each op's name, by a stack for each thread: an op has what was launched inside it.

    The ids that Kineto writes (``External id``) tell the op of a kernel here, not the launch's time.
    """
    of_op: dict[int, float] = defaultdict(float)
    for one in events(path):
        if one.get("cat") in ("Kernel", "Memcpy", "Memset"):
            of_op[int(one["args"]["external id"])] += one["dur"]
    lanes: dict[int, list[dict]] = defaultdict(list)
    for one in events(path):
        if one.get("cat") == "Operator" and one["dur"] > 0 and "ProfilerStep" not in one["name"]:
            lanes[one["tid"]].append(one)
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for lane in lanes.values():
        open_now: list[dict] = []
        for one in sorted(lane, key=lambda event: (event["ts"], -event["dur"])):
            while open_now and open_now[-1]["ts"] + open_now[-1]["dur"] < one["ts"] + one["dur"]:
                open_now.pop()
            here, device = found[one["name"]], of_op.get(int(one["args"]["External id"]), 0)
            here["calls"] += 1
            here["device_self"] += device
            here["host_self"] += one["dur"]
            if open_now:
                found[open_now[-1]["name"]]["host_self"] -= one["dur"]
            names = {outer["name"] for outer in open_now}
            if one["name"] not in names:
                here["host_total"] += one["dur"]
            for name in names | {one["name"]}:
                found[name]["device_total"] += device
            open_now.append(one)
    return found


@pytest.mark.parametrize("workers", [0, 4])
def test_operators_are_those_of_a_brute_force_and_of_the_plugin(shared, workers):
    path = shared / RESNET.format(workers)
    frame = traces.load(path).operators()
    assert frame["device_self"].sum() == PLUGIN[workers] * 1000
    assert frame["reason"].null_count() == len(frame)  # every kernel has an op
    wanted = by_hand(path)
    assert set(frame["op"]) == set(wanted)
    for row in frame.to_dicts():
        expected = wanted[row["op"]]
        for name in ("device_self", "device_total", "host_self", "host_total"):
            assert row[name] == round(expected[name] * 1000), (row["op"], name)
        assert row["calls"] == expected["calls"], row["op"]


@pytest.mark.parametrize("name", FILES)
def test_parts_add_up_to_wholes(shared, name):
    profile = traces.load(shared / name)
    whole = profile.summary()["device_time"].item() or 0
    host = profile.ops()["self_time"].sum()
    for by in ((), ("inputs",), ("source",)):
        frame = profile.operators(*by)
        assert frame["device_self"].sum() == whole
        assert frame["host_self"].sum() == host
    for frame in (profile.modules(), profile.modules(depth=2)):
        assert frame["device_self"].sum() == frame["device_total"][0] == whole
        assert frame["host_self"].sum() == (frame["host_total"][0] or 0) == host
    for frame in (profile.call_tree(), profile.call_tree(depth=5, nodes=20)):
        assert frame["device_self"].sum() == frame["device_total"][0] == whole
        assert frame["host_self"].sum() == frame["host_total"][0]
    for by in ("type", "operator"):
        assert profile.operator_statistics(by)["total"].sum() == whole
    assert profile.kernel_activities()["total"].sum() == profile.kernels()["duration"].sum()


def test_modules_are_those_of_the_ranges_that_a_brute_force_nests(shared):
    path = shared / "kineto/timesformer_h100.json.gz"
    frame = traces.load(path).modules().filter(pl.col("row_kind") == "module")
    ranges = [one for one in events(path) if one["name"].startswith("nn.Module: ")]
    assert len(ranges) == frame["module_calls"].sum()
    wanted: dict[str, float] = defaultdict(float)
    for one in ranges:
        wanted[one["name"].removeprefix("nn.Module: ")] += one["dur"]
    found = frame.group_by("module").agg(pl.col("call_time").sum() / 1000)
    assert dict(found.iter_rows()) == pytest.approx(wanted, abs=0.01)
    linear = frame.filter(pl.col("module") == "Linear_17").row(0, named=True)
    assert linear["module_type"] == "Linear"
    around = frame.filter(pl.col("module_id") == linear["parent_module"])
    assert around["module"].to_list() == ["TimesformerSelfAttention_5"]


def test_the_means_of_operators_are_those_that_mindspore_states_on_an_ascend(shared):
    """Its file of types adds up the means of operators, whose timeline may have several executions."""
    folder = shared / "mindspore/mindinsight_run2_ascend910"
    with (folder / "aicore_intermediate_1_detail.csv").open(newline="") as file:
        stated = {row["full_op_name"]: float(row["execution_time"]) for row in csv.DictReader(file)}
    frame = traces.load(folder).operator_statistics("operator")
    found = dict(frame.select("operator", "mean").iter_rows())
    assert len(stated) > 80
    assert set(stated) <= set(found)
    for node, ms in stated.items():
        assert found[node] / 1e6 == pytest.approx(ms, rel=1e-3, abs=1e-5), node
