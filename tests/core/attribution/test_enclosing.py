"""What encloses an op, and what a backward op takes from its forward op."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.analysis.ops.ops import Ops
from opscope.core.attribution import enclosing
from opscope.core.attribution.attribute import attribute
from tests import traces


def rng(text: str, start: int, end: int, **more: object) -> dict:
    base = {"process": 0, "thread": 1, "domain": "opscope.torch", "kind": "pushpop"}
    return {**base, "text": text, "start": start, "end": end, **more}


def described(trace) -> dict[str, dict]:
    ops = Ops(attribute(trace))
    about = ops.describe(ops.rows)
    columns = [about.direction, about.layer, about.step, about.source, about.call["inputs"]]
    frame = pl.DataFrame([about.call["op"], *columns]).with_columns(
        pl.Series("forward", about.forward)
    )
    return {row["op"]: row for row in frame.to_dicts()}


def test_layer_step_phase_and_source(trace_of):
    about = described(
        trace_of(
            ranges=[
                rng("step 3", 0, 100, category="step", domain="opscope.step"),
                rng("model.conv1", 10, 40, category="layer"),
                rng("model.conv1.act", 20, 30, category="layer"),
                rng("aten::relu(f32[2]) @net.py:7 < main.py:1", 21, 25, category="forward"),
                rng("aten::add(f32[2])", 31, 35, category="forward"),
                rng("aten::zero_(f32[2])", 50, 55, category="optimizer"),
            ]
        )
    )
    assert about["aten::relu"] == {
        "op": "aten::relu", "direction": "forward", "layer": "model.conv1.act", "step": 3,
        "source": "net.py:7 < main.py:1", "inputs": "f32[2]", "forward": -1,
    }  # fmt: skip
    assert about["aten::add"]["layer"] == "model.conv1"
    assert about["aten::zero_"]["layer"] is None
    assert about["aten::zero_"]["direction"] == "optimizer"


def test_a_step_marked_on_one_thread_holds_ops_of_the_others(trace_of):
    about = described(
        trace_of(
            ranges=[
                rng("step 0", 0, 10, category="step"),
                rng("step 1", 10, 20, category="step"),
                rng("a()", 3, 4, thread=9),
                rng("b()", 10, 12, thread=9),
                rng("c()", 20, 21, thread=9),
            ]
        )
    )
    assert [about[name]["step"] for name in "abc"] == [0, 1, None]


def test_a_backward_op_inherits_from_the_op_it_differentiates(trace_of):
    forward = {"seq": 5, "fwd_thread": 1}
    about = described(
        trace_of(
            ranges=[
                rng("net.fc", 0, 20, category="layer"),
                # the composite op and the one inside it share a number: the inner one is it
                rng("aten::linear(f32[4,2])", 1, 9, category="forward", **forward),
                rng("aten::addmm(f32[3], f32[4,2]) @net.py:8", 2, 8, category="forward", **forward),
                # another forward thread's op with the same number is not
                rng("aten::other()", 2, 8, category="forward", thread=2, seq=5, fwd_thread=2),
                rng("AddmmBackward0()", 50, 60, thread=3, category="backward", **forward),
                rng("aten::mm(f32[2,4])", 51, 55, thread=3, category="backward"),
            ]
        )
    )
    node, inner = about["AddmmBackward0"], about["aten::mm"]
    assert (node["layer"], node["source"], node["inputs"]) == (
        "net.fc",
        "net.py:8",
        "f32[3], f32[4,2]",
    )
    assert (inner["layer"], inner["source"], inner["inputs"]) == ("net.fc", "net.py:8", "f32[2,4]")
    assert inner["direction"] == "backward"
    assert node["forward"] == inner["forward"] == 2


@pytest.mark.parametrize("complete", [True, False])
def test_a_result_mark_completes_the_call(trace_of, complete):
    text = "aten::mm(f32[2,3], f32[3,4])"
    first = [
        rng(text, 0, 10, category="forward"),
        rng("-> f32[2,4]", 9, 9, category="result", kind="mark"),
        rng(f"{text} -> f32[2,4]", 20, 30, category="forward"),
    ]
    result = attribute(trace_of(ranges=first if complete else first[:1]))
    calls = [result.meaning.readings[number].call for number in result.meaning.reading]
    if complete:
        assert calls[0] == calls[2]
    else:
        assert calls[0].outputs is None


def test_python_frames_give_source_and_module_frames_layers(trace_of):
    python = {"domain": "python"}
    about = described(
        trace_of(
            ranges=[
                rng("main.py(10): <module>", 0, 90, **python),
                rng("nn.Module: Net_0", 1, 80, category="layer", **python),
                rng("torch/nn/modules/module.py(1): _call_impl", 2, 70, **python),
                rng("net.py(5): forward", 3, 60, **python),
                rng("nn.Module: Conv2d_0", 4, 50, category="layer", **python),
                rng("aten::conv2d(f32[2])", 5, 40, domain="kineto"),
            ]
        )
    )
    assert about["aten::conv2d"]["layer"] == "Net_0/Conv2d_0"
    assert about["aten::conv2d"]["source"] == "net.py:5 < main.py:10"


def test_a_user_range_is_no_op_where_the_process_has_ops(trace_of):
    launch = {
        "process": 0,
        "thread": 1,
        "start": 5,
        "end": 6,
        "name": "cudaLaunchKernel",
        "correlation": 1,
    }
    kernel = {"process": 0, "device": 0, "start": 9, "end": 12, "name": "k", "correlation": 1}
    user = rng("epoch", 0, 90, domain="mine")
    alone = attribute(trace_of(ranges=[user], calls=[launch], kernels=[kernel]))
    assert alone.kernels.op.tolist() == [0]
    beside = attribute(
        trace_of(ranges=[user, rng("aten::mm()", 50, 60)], calls=[launch], kernels=[kernel])
    )
    assert beside.kernels.op.tolist() == [-1]


def test_a_step_that_nothing_ended_is_no_ops_step(trace_of):
    """The optimizer's end begins one, and what follows the training is none."""
    unclosed = '{"unclosed":true}'
    about = described(
        trace_of(
            ranges=[
                rng("step 0", 0, 10, category="step", domain="opscope.step"),
                rng("step 1", 10, 99, category="step", domain="opscope.step", attrs=unclosed),
                rng("a(f32[1])", 1, 2, category="forward"),
                rng("b(f32[1])", 11, 12, category="forward"),
            ]
        )
    )
    assert [about[name]["step"] for name in "ab"] == [0, None]


@pytest.mark.parametrize(
    ("outer", "inner", "both"),
    [
        # PyProf's markers have the whole stack each
        ("m.py:9 < main.py:3", "m.py:9 < main.py:3", "m.py:9 < main.py:3"),
        ("clip.py:32 < m.py:9 < main.py:3", "tensor.py:1 < m.py:9 < main.py:3",
         "tensor.py:1 < m.py:9 < main.py:3"),
        # Kineto's ranges are a frame each: a recursion through two functions stays
        ("b.py:7 < a.py:5", "a.py:5", "a.py:5 < b.py:7 < a.py:5"),
        ("main.py:3", "m.py:9", "m.py:9 < main.py:3"),
    ],
)  # fmt: skip
def test_the_frames_of_nested_ranges_are_not_repeated(outer, inner, both):
    assert enclosing._join_source(outer, inner) == both


def test_no_source_of_a_real_trace_of_markers_repeats_itself(shared):
    found = traces.load(shared / "nvprof/language_model.sqlite").ops()["source"].drop_nulls()
    frames = found.unique().str.split(" < ")
    assert len(frames)
    assert (frames.list.n_unique() == frames.list.len()).all()
