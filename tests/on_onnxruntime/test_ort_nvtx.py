"""The NVTX that a tool hears of ONNX Runtime: runs, which are the parents of what nodes launch, and steps."""

from __future__ import annotations

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from opscope.core.rangetext import parse, parse_result
from opscope.core.schema import CATEGORY_ID
from tests.nvtx_tool import build, hear
from tests.on_onnxruntime.models import cnn

PROGRAM = """
import os, sys, numpy as np, onnxruntime as ort, opscope
opscope.init({asked})
session = ort.InferenceSession("cnn.onnx")
x = np.ones((2, 3, 16, 16), np.float32)
with opscope.annotate("serving"):
    for _ in range(3):
        opscope.step()
        session.run(None, {{"x": x}})
binding = session.io_binding()
binding.bind_cpu_input("x", x)
binding.bind_output("y")
session.run_with_iobinding(binding)
opscope.shutdown()
session.run(None, {{"x": x}})
result = os.listdir()
"""


@pytest.fixture(scope="module")
def tool(tmp_path_factory):
    return build(tmp_path_factory.mktemp("tool"))


@pytest.mark.parametrize("asked", ["", '"onnxruntime"'])
def test_runs_with_their_outputs_and_steps(tool, tmp_path, asked):
    cnn().save(tmp_path)
    heard = hear(PROGRAM.format(asked=asked), tool, tmp_path)
    ours = heard.of("push", "pop", "mark", domain="opscope.onnxruntime")
    pushed = [one for one in ours if one.kind == "push"]
    assert {one.category for one in pushed} == {CATEGORY_ID["forward"]}
    calls = [parse(one.text) for one in pushed]
    names = ["InferenceSession.run"] * 3 + ["InferenceSession.run_with_iobinding"]
    assert [call.name for call in calls] == names
    for call in calls:
        assert [(one.dtype, one.shape) for one in call.inputs] == [("f32", (2, 3, 16, 16))]
        assert call.outputs is None
        assert (call.device, call.param("model"), call.param("session")) == ("cpu", "cnn", 1)
    assert [one.kind for one in ours if one.kind != "mark"] == ["push", "pop"] * 4
    results = [parse_result(one.text) for one in ours if one.category == CATEGORY_ID["result"]]
    assert [[(out.dtype, out.shape) for out in one.outputs] for one in results] == [
        [("f32", (2, 10))]
    ] * 4
    # a result comes before the end of its run
    kinds = [one.kind for one in ours if one.category != CATEGORY_ID["spec"]]
    assert kinds == ["push", "mark", "pop"] * 4
    steps = heard.of("push", domain="opscope.step")
    assert [(one.text, one.payload) for one in steps] == [("step", 0), ("step", 1), ("step", 2)]
    # the tool takes no files: a session is not profiled for it
    assert set(heard.result) <= {"cnn.onnx", "nvtx.log"}


def test_threads_nest_their_own_runs(tool, tmp_path):
    cnn().save(tmp_path)
    program = """
import threading, numpy as np, onnxruntime as ort, opscope
opscope.init()
session = ort.InferenceSession("cnn.onnx")
x = np.ones((2, 3, 16, 16), np.float32)
def work():
    for _ in range(5):
        session.run(None, {"x": x})
threads = [threading.Thread(target=work) for _ in range(3)]
for one in threads: one.start()
for one in threads: one.join()
"""
    heard = hear(program, tool, tmp_path)
    ours = heard.of("push", "pop", domain="opscope.onnxruntime")
    by_thread = {}
    for one in ours:
        by_thread.setdefault(one.thread, []).append(one.kind)
    assert list(by_thread.values()) == [["push", "pop"] * 5] * 3
