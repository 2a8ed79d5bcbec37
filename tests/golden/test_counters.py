"""The shared trace of CUPTI's range profiler: each kernel's operators, counted in plain Python."""

from __future__ import annotations

import gzip
import json

import pytest

from tests import traces

FILE = "kineto/alexnet_cupti_counters_a100.json.gz"


@pytest.fixture(scope="module")
def events(shared):
    return json.loads(gzip.decompress((shared / FILE).read_bytes()))["traceEvents"]


@pytest.fixture(scope="module")
def frame(shared):
    return traces.load(shared / FILE).counters(names="hta")


def test_every_kernel_has_the_operators_around_its_launch(events, frame):
    launches = sorted(
        (e for e in events if e.get("name") == "cudaLaunchKernel"), key=lambda e: e["ts"]
    )
    ops = [e for e in events if e.get("cat") == "cpu_op"]
    stacks = []
    for call in launches:
        around = [
            op
            for op in ops
            if op["tid"] == call["tid"] and op["ts"] <= call["ts"] < op["ts"] + op["dur"]
        ]
        stacks.append([op["name"] for op in sorted(around, key=lambda op: (op["ts"], -op["dur"]))])
    assert len(frame) == 77
    assert frame["op_stack"].to_list() == stacks
    assert frame["top_level_op"].to_list() == [stack[0] for stack in stacks]
    assert frame["bottom_level_op"].to_list() == [stack[-1] for stack in stacks]


def test_every_value_is_the_files(events, frame):
    measured = sorted(
        (e for e in events if e.get("cat") == "cuda_profiler_range"), key=lambda e: e["ts"]
    )
    assert frame["name"].to_list() == [e["name"] for e in measured]
    for name in measured[0]["args"]:
        assert frame[name].to_list() == [e["args"][name] for e in measured]


def test_the_nine_counters_count_what_ran_off_the_tensor_cores(shared):
    profile = traces.load(shared / FILE)
    work = profile.counter_work()
    # AlexNet's linear layers at batch 128, of two forward passes; the last one's outputs are padded
    linear = work.filter(
        (work["op"] == "aten::addmm") & work["name"].str.starts_with("ampere_sgemm")
    )
    counted = sorted(linear["f32_flops"].to_list())[2:]
    products = [2 * 128 * 4096 * 4096] * 2 + [2 * 128 * 9216 * 4096] * 2
    # a product scales its results by alpha and adds the bias: 1 or 2 FLOPs a result more
    for one, product in zip(counted, products, strict=True):
        assert 0 < one - product <= 2 * 128 * 4096 * 4
    assert work["tensor_flops"].null_count() == len(work)
    assert work["dram_bytes"].null_count() == len(work)
    rows = {row["op"]: row for row in profile.counter_roofline().to_dicts()}
    # sgemm's name proves that it uses no Tensor Cores, cuDNN's kernels have no name here
    assert (
        rows["aten::addmm"]["counted_flops"]
        == work.filter(work["op"] == "aten::addmm")["f32_flops"].sum()
    )
    assert rows["aten::cudnn_convolution"]["counted_flops"] is None
    assert "Tensor Cores" in rows["aten::cudnn_convolution"]["counted_reason"]
