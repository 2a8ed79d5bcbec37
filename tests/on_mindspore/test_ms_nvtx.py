"""The NVTX that a tool hears: ops, layers, steps, runs of graphs and their specs; and mstx on Ascend."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("mindspore")

from opscope.core.rangetext import parse, parse_spec
from opscope.core.schema import CATEGORY_ID
from tests.nvtx_tool import build, hear

ROOT = Path(__file__).parents[2]
QUIET = {
    "GLOG_v": "3",
    "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
}
TRAINING = """
import opscope
opscope.init()
import mindspore as ms
from tests.on_mindspore.models import LeNet, trained, trained_by_cell
"""


@pytest.fixture(scope="module")
def tool(tmp_path_factory):
    return build(tmp_path_factory.mktemp("tool"))


def test_ops_layers_and_steps_of_pynative_mode(tool, tmp_path):
    """A program that ends while a tool listens ends well, too."""
    program = f"{TRAINING}\nms.set_context(mode=ms.PYNATIVE_MODE)\ntrained(LeNet, 2)\n"
    heard = hear(program, tool, tmp_path, **QUIET)
    ours = heard.of("push", domain="opscope.mindspore")
    assert len(ours) == len(heard.of("pop", domain="opscope.mindspore"))
    by = {
        name: [one for one in ours if one.category == CATEGORY_ID[name]]
        for name in ("forward", "backward", "layer", "phase")
    }
    convolutions = [one for one in by["forward"] if one.text.startswith("Conv2D(")]
    assert len(convolutions) == 4
    call = parse(convolutions[0].text)
    assert [tensor.shape for tensor in call.inputs] == [(4, 1, 28, 28), (6, 1, 5, 5)]
    assert call.param("pad_mode") == "valid"
    assert call.device == "cpu"
    gradients = [one for one in by["backward"] if one.text.startswith("Conv2DBackward(")]
    assert {one.payload for one in gradients} <= {one.payload for one in convolutions}
    assert len(gradients) == 4
    layers = [one.text for one in by["layer"]]
    assert layers.count("LeNet.conv1") == 2
    assert layers.count("CrossEntropyLoss") == 2
    steps = heard.of("push", domain="opscope.step")
    assert [(one.text, one.payload) for one in steps][:2] == [("step", 0), ("step", 1)]


def test_runs_and_specs_of_graph_mode(tool, tmp_path):
    program = f"{TRAINING}\nms.set_context(mode=ms.GRAPH_MODE)\ntrained_by_cell(LeNet, 2)\n"
    heard = hear(program, tool, tmp_path, **QUIET)
    ours = heard.of("push", domain="opscope.mindspore")
    runs = [one.text for one in ours if one.category == CATEGORY_ID["graph"]]
    assert runs == ["TrainOneStepCell"] * 2
    assert not [one for one in ours if one.category == CATEGORY_ID["layer"]]
    specs = [
        parse_spec(one.text)
        for one in heard.of("mark", domain="opscope.mindspore")
        if one.category == CATEGORY_ID["spec"]
    ]
    known = {key: parse(text) for graph, key, text in specs if graph == "TrainOneStepCell"}
    assert known["conv1.weight"].outputs[0].shape == (6, 1, 5, 5)
    assert known["conv1.weight"].outputs[0].dtype == "f32"
    steps = heard.of("push", domain="opscope.step")
    assert [one.payload for one in steps][:2] == [0, 1]


class Marks:
    """A stand-in for ``mindspore.profiler.mstx``, which does nothing without an Ascend device."""

    def __init__(self):
        self.heard = []

    def range_start(self, text, stream=None):
        self.heard.append(("start", text))
        return len(self.heard)

    def range_end(self, number):
        self.heard.append(("end", number))

    def mark(self, text, stream=None):
        self.heard.append(("mark", text))


@pytest.mark.parametrize("ascend", [True, False])
def test_marks_of_mstx_are_made_on_ascend_alone(monkeypatch, recorded, ascend):
    import mindspore as ms

    from opscope.adapters.mindspore import mstx
    from tests.on_mindspore.models import LeNet, trained

    marks = Marks()
    monkeypatch.setattr(ms.profiler, "mstx", marks)
    monkeypatch.setattr(mstx, "on_ascend", lambda: ascend)
    recorded(lambda: trained(LeNet, 1))
    if not ascend:
        assert not marks.heard
        return
    started = [text for kind, text in marks.heard if kind == "start"]
    assert any(text.startswith("Conv2D(f32[4,1,28,28]") for text in started)
    assert "LeNet.conv1" in started
    assert ("mark", "step 1") in marks.heard
    ended = [number for kind, number in marks.heard if kind == "end"]
    assert len(ended) == len(set(ended)) == len(started)
    assert max(len(text.encode()) for text in started) <= mstx.MAX_BYTES
