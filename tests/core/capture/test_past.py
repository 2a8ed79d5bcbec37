"""A range that is recorded when it is over is as one that was pushed."""

from __future__ import annotations

from time import perf_counter_ns

import polars as pl

import opscope
from opscope.core.capture import session
from opscope.core.schema import OpCall, TensorSpec


def test_a_range_of_the_past_has_its_times_its_call_and_its_pair(tmp_path):
    call = OpCall("Softmax", (TensorSpec("f32", (2, 3)),), (TensorSpec("f32", (2, 3)),))
    path = tmp_path / "run.opscope"
    with opscope.capture(path, backend="recorder"):
        emitter = session.emitter("made")
        emitter.push(emitter.prepare(call, "forward"), 7, 1)
        emitter.pop()
        start = perf_counter_ns()
        end = perf_counter_ns()
        backward = OpCall("SoftmaxBackward", call.inputs, call.outputs)
        emitter.past(emitter.prepare(backward, "backward"), start, end, 7, 1)
        emitter.past(emitter.prepare("alone", "phase"), end, end + 1)
    ranges = opscope.load(path).trace["ranges"].sort("start")
    ranges = ranges.with_columns(pl.col("text", "category").cast(pl.String))
    forward, gradient, alone = ranges.select(
        "text", "category", "start", "end", "seq", "fwd_thread"
    ).rows()
    assert gradient[:2] == ("SoftmaxBackward(f32[2,3]) -> f32[2,3]", "backward")
    assert gradient[3] - gradient[2] == end - start
    assert gradient[4:] == forward[4:] == (7, 1)
    assert alone[4:] == (None, None)


def test_a_pop_of_the_past_ends_a_range_after_those_within_it_and_before_what_came_then(tmp_path):
    path = tmp_path / "run.opscope"
    with opscope.capture(path, backend="recorder"):
        emitter = session.emitter("made")
        emitter.push(emitter.prepare(OpCall("run"), "forward"))
        start, end = perf_counter_ns(), perf_counter_ns() + 1
        emitter.past(emitter.prepare(OpCall("node"), "forward"), start, end)
        complete = emitter.prepare(OpCall("run", (), (TensorSpec("f32", (2,)),)), "forward")
        emitter.pop_past(complete, end)
        after = perf_counter_ns()
    ops = opscope.load(path).ops()
    run, node = ops.sort("depth").select("op", "outputs", "start", "end", "parent_id").rows()
    assert run[:2] == ("run", "f32[2]")
    assert node[0] == "node"
    assert node[3] == run[3]
    assert node[3] - node[2] == end - start
    assert node[4] is not None
    assert after >= end
