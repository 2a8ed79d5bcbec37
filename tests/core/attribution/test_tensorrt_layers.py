"""TensorRT's own ranges carry a layer's name: the spec of the engine that runs says what the layer is."""

from __future__ import annotations

import pytest

from opscope.profile import Profile

WHERE = {"process": 0, "thread": 1}
SMALL = "trt::Convolution(f32[1,2,4,4], f32[2,2,1,1]) -> f32[1,2,4,4] {kernel=[1, 1], out_maps=2, groups=1}"
LARGE = "trt::Convolution(f16[8,2,4,4], f16[2,2,1,1]) -> f16[8,2,4,4] {kernel=[1, 1], out_maps=2, groups=1}"


def push(domain, text, start, end, category=None):
    return {**WHERE, "kind": "pushpop", "domain": domain, "category": category, "text": text,
            "start": start, "end": end}  # fmt: skip


def mark(text, time):
    return {**WHERE, "kind": "mark", "domain": "opscope.tensorrt", "category": "spec", "text": text,
            "start": time, "end": time}  # fmt: skip


def run(engine, start):
    """A run of an engine as the adapter and TensorRT see it, with the layer ``conv``."""
    call = f'trt::execute_async_v3() -> f32[1] {{engine="{engine}", profile=0}}'
    return [
        push("opscope.tensorrt", engine, start, start + 90, "graph"),
        push("opscope.tensorrt", call, start + 1, start + 89, "forward"),
        push("TensorRT", "ExecutionContext::enqueue", start + 2, start + 88),
        push("TensorRT", "conv", start + 10, start + 20),
    ]


@pytest.fixture
def profile(trace_of) -> Profile:
    starts = (100, 300, 500)
    return Profile(
        trace_of(
            processes=[{"process": 0}],
            ranges=[
                mark(f"small/conv = {SMALL}", 1),
                mark(f"large/conv = {LARGE}", 2),
                *(row for engine, at in zip(("small", "large", "small"), starts, strict=True)
                  for row in run(engine, at)),
            ],
            calls=[{**WHERE, "name": "cudaLaunchKernel", "start": at + 15, "end": at + 16, "correlation": at}
                   for at in starts],
            kernels=[{"process": 0, "device": 0, "stream": 7, "start": at + 30, "end": at + 40,
                      "name": "sm80_xmma_fprop", "correlation": at} for at in starts],
        )
    )  # fmt: skip


def test_a_layer_is_that_of_the_engine_that_runs(profile):
    kernels = profile.kernels()
    assert kernels["op"].to_list() == ["trt::Convolution"] * 3
    assert kernels["layer"].to_list() == ["conv"] * 3
    each = 2 * 2 * 16 * 2
    assert kernels["flops"].to_list() == [each, 8 * each, each]
    assert kernels["inputs"].str.slice(0, 3).to_list() == ["f32", "f16", "f32"]


def test_the_run_around_a_layer_counts_nothing_itself(profile):
    ops = profile.ops()
    whole = ops.filter(op="trt::execute_async_v3")
    assert len(whole) == 3
    assert whole["canonical"].to_list() == [False] * 3
    assert ops["flops"].sum() == 10 * 2 * 2 * 16 * 2


def test_a_layer_without_a_spec_keeps_its_name(trace_of):
    found = Profile(trace_of(processes=[{"process": 0}], ranges=run("small", 100)))
    assert "conv" in found.ops()["op"].to_list()
