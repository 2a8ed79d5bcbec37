"""Mixed precision, loss scales and accumulated gradients: what is recorded, and that nothing is changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

pytest.importorskip("mindspore")

import mindspore as ms
import numpy as np

import opscope
from opscope.backends.mindspore_capture import MindSporeCapture
from opscope.core.capture import session
from opscope.profile import Profile
from opscope.readers.recording.reader import collect
from tests.on_mindspore.mixed_precision import EVERY, IN_GRAPHS, STEPS, WAYS

ROOT = Path(__file__).parents[2]
#: What gradients run that differentiates no operator: the first gradient, and sums of gradients.
OF_NO_OP = ["Ones", "OnesLike", "Add", "AddN", "AddExt", "ZerosLike"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """MindSpore's rewriting of a network writes files where it runs, and changes Python's path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())


def as_text(ops):
    columns = ("op", "layer", "dtypes", "direction", "inputs", "outputs")
    return ops.with_columns(pl.col(*columns).cast(pl.String))


@pytest.mark.parametrize("way", WAYS)
def test_operators_have_shapes_dtypes_layers_pairs_and_steps_in_pynative_mode(recorded, way):
    profile = recorded(WAYS[way])
    wanted = STEPS // EVERY if way == "accumulated" else STEPS
    assert profile.summary()["steps"].item() == wanted
    ops = as_text(profile.ops())
    assert ops["dtypes"].null_count() == 0
    assert not ops["inputs"].fill_null("").str.contains(r"\?").any()
    assert {"forward", "backward"} <= set(ops["direction"])
    backward = ops.filter((pl.col("direction") == "backward") & ~pl.col("op").is_in(OF_NO_OP))
    assert len(backward) > 20
    assert not backward.filter(pl.col("forward_op_id").is_null()).select("op", "inputs").rows()
    halves = way != "accumulated"
    products = ops.filter(pl.col("op").str.contains("MatMul") & (pl.col("direction") == "forward"))
    assert len(products) == 3 * STEPS
    # an automatic cast of what an op reads can be within the op
    assert products["outputs"].str.contains(r"\bf16\[").all() == halves
    assert ops["inputs"].fill_null("").str.contains(r"\bf16\[").any() == halves
    # MindSpore's rewriting of a network for its lists of operators gives the class another name
    root = "LeNetOpt" if way == "lists" else "LeNet"
    layers = {one.split(".")[0] for one in ops["layer"].drop_nulls()}
    assert layers == {root, "CrossEntropyLoss"}


def test_the_wrappers_of_automatic_mixed_precision_are_no_layers(recorded):
    class Net(ms.nn.Cell):
        def __init__(self):
            super().__init__()
            self.conv, self.bn = ms.nn.Conv2d(1, 4, 3), ms.nn.BatchNorm2d(4)

        def construct(self, x):
            return self.bn(self.conv(x))

    def run():
        net = ms.amp.auto_mixed_precision(Net(), "O2")  # wraps the model and the normalization
        net(ms.Tensor(np.ones((2, 1, 8, 8), np.float32)))

    layers = set(recorded(run).ops()["layer"].drop_nulls())
    assert {"Net.conv", "Net.bn"} <= layers
    assert not any("_backbone" in layer for layer in layers)


def test_bfloat16_is_told_as_such(recorded):
    """By a cast: MindSpore's products and convolutions on the CPU take no bfloat16."""
    x = ms.Tensor([[1.0, 2.0], [3.0, 4.0]], ms.float32)

    def there_and_back(x):
        return ms.ops.cast(ms.ops.cast(x, ms.bfloat16), ms.float32).sum()

    ops = as_text(recorded(lambda: ms.value_and_grad(there_and_back)(x)).ops())
    casts = ops.filter(pl.col("op").str.contains("Cast"))
    for direction in ("forward", "backward"):
        one = casts.filter(pl.col("direction") == direction)
        assert set(one["outputs"]) == {"bf16[2,2]", "f32[2,2]"}


@pytest.mark.parametrize("way", IN_GRAPHS)
def test_operators_have_shapes_dtypes_layers_and_pairs_in_graph_mode(tmp_path, way):
    ms.set_context(mode=ms.GRAPH_MODE)
    opscope.init()
    session.start(MindSporeCapture(tmp_path))
    WAYS[way]()  # its model is gone before the capture ends
    session.stop()
    opscope.shutdown()
    ops = as_text(Profile(collect(tmp_path)).ops())
    assert ops["inputs"].null_count() == 0
    # what MindSpore itself puts into a graph for kernels without float16 are casts: no graph tells of them
    told = ops.filter(pl.col("op") != "Cast")
    assert not told["inputs"].str.contains(r"\?").any()
    convolutions = ops.filter(pl.col("op").str.starts_with("Conv2D"))
    assert convolutions["inputs"].str.contains(r"\bf16\[").all()
    assert set(ops["direction"]) == {"forward", "backward", "optimizer"}
    assert told.filter(~pl.col("op").is_in(OF_NO_OP))["layer"].null_count() == 0
    backward = told.filter((pl.col("direction") == "backward") & ~pl.col("op").is_in(OF_NO_OP))
    of_model = backward.filter(pl.col("layer").str.starts_with("LeNet"))
    assert len(of_model) == 18 * STEPS  # of convolutions 3, products 6, ReLU 4, pools 2, biases 3
    assert not of_model.filter(pl.col("forward_op_id").is_null()).select("op", "inputs").rows()


PROGRAM = """
import contextlib, hashlib, json, sys
import opscope
opscope.init()
import mindspore as ms
from tests.on_mindspore.mixed_precision import WAYS
ways, mode, target = sys.argv[1].split(","), sys.argv[2], sys.argv[3]
ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
if not target:
    opscope.shutdown()
with opscope.capture(target, backend="recorder") if target else contextlib.nullcontext():
    found = [WAYS[way]() for way in ways]
print(json.dumps([
    [losses, {name: hashlib.md5(one).hexdigest() for name, one in weights.items()}]
    for losses, weights in found
]))
"""


def results(ways, mode, folder, target):
    environ = {**os.environ, "GLOG_v": "3", "OMP_NUM_THREADS": "1"}
    environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(ways), mode, target],
        capture_output=True, text=True, env=environ, timeout=600, check=False, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("ways", "mode"), [(tuple(WAYS), "pynative"), (IN_GRAPHS, "graph")])
def test_losses_and_weights_are_those_without_opscope(tmp_path, ways, mode):
    with_it = results(ways, mode, tmp_path, str(tmp_path / "run.opscope"))
    without = results(ways, mode, tmp_path, "")
    for way, one, other in zip(ways, with_it, without, strict=True):
        assert one == other, way
        assert one[0] is None or one[0][0] != one[0][-1]  # it trains
