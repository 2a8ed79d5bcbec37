"""Which ops are forward, backward or the optimizer's where their texts do not say so."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.profile import Profile

NODE = "AddmmBackward0(f32[4,5])"


def op(thread: int, start: int, text: str, seq: int | None = None, end: int | None = None) -> dict:
    category = "backward" if "Backward" in text else "optimizer" if "adam" in text else None
    return {
        "process": 0, "thread": thread, "start": start, "end": end or start + 5, "domain": "kineto",
        "category": category, "kind": "pushpop", "text": text, "seq": seq,
        "fwd_thread": None if seq is None else 1,
    }  # fmt: skip


def directions(trace_of, *ranges: dict) -> dict[str, str]:
    ops = Profile(trace_of(ranges=list(ranges))).ops()
    return dict(ops.select("op", "direction").rows())


def test_what_the_engine_does_between_its_nodes_is_backward(trace_of):
    found = directions(
        trace_of, op(1, 0, "aten::addmm(f32[4,5])", 7), op(2, 100, NODE, 7),
        op(2, 110, "aten::add(f32[4], f32[4])"),
    )  # fmt: skip
    assert found["aten::add"] == "backward"
    assert found["aten::addmm"] == "forward"


@pytest.mark.parametrize(
    "more",
    [
        op(2, 50, "aten::mul(f32[4])", 3),  # it makes nodes of its own
        op(2, 200, "aten::_fused_adam_(f32[4])"),  # it says of an op that it is the optimizer's
        op(3, 100, "aten::relu(f32[4])"),  # another thread is no part of it
    ],
)
def test_a_thread_that_does_more_than_differentiate_is_not_the_engines(trace_of, more):
    ranges = [op(1, 0, "aten::addmm(f32[4,5])", 7), op(2, 100, NODE, 7), more]
    ranges.append(op(3 if more["thread"] == 3 else 2, 300, "aten::add(f32[4], f32[4])"))
    assert directions(trace_of, *ranges)["aten::add"] == "forward"


def test_a_thread_of_another_frameworks_pool_is_not_the_engines(trace_of):
    gradient = {**op(2, 100, "ReluGrad(f32[4])"), "category": "backward"}
    assert directions(trace_of, gradient, op(2, 110, "Exp(f32[4])"))["Exp"] == "forward"


@pytest.mark.parametrize(("number", "expected"), [(0, "forward"), (228, "backward")])
def test_a_zero_is_no_number_unless_a_node_has_it(trace_of, number, expected):
    """``emit_nvtx`` writes the number that the thread's next node would have: 0 on one that makes none."""
    found = directions(trace_of, op(2, 100, NODE, number), op(2, 110, "aten::sum(f32[4])", 0))
    assert found["aten::sum"] == expected


def test_kernels_of_the_engines_thread_are_backward(shared):
    from opscope import load

    kernels = load(shared / "kineto/resnet50_nw4_step_span1.pt.trace.json.gz").kernels()
    added = kernels.filter((pl.col("op") == "aten::add") & (pl.col("direction") == "backward"))
    assert len(added) == 96
