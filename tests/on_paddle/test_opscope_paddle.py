"""The adapter of another package, examples/opscope_paddle, installed and on a model that trains."""

from __future__ import annotations

import importlib.metadata
import inspect
import logging
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope import adapters
from tests.script import module_at

paddle = pytest.importorskip("paddle")

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "examples" / "opscope_paddle"
pytest.importorskip("opscope_paddle")
example = module_at("examples/opscope_paddle/train.py")
STEPS, BATCH = 4, 32


@pytest.fixture(autouse=True)
def _shut_down():
    yield
    opscope.shutdown()


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    target = tmp_path_factory.mktemp("paddle") / "run.opscope"
    with opscope.capture(target, backend="recorder"):
        example.train(STEPS, BATCH)
    opscope.shutdown()
    return opscope.load(target)


def hooks():
    optimizer = paddle.optimizer
    return (
        paddle._C_ops.matmul,
        paddle.base.core.eager.run_backward,
        *(inspect.getattr_static(paddle.Tensor, name) for name in ("__add__", "__rmul__")),
        inspect.getattr_static(paddle.nn.Layer, "__call__"),
        inspect.getattr_static(optimizer.Optimizer, "step"),
        inspect.getattr_static(optimizer.Adam, "step"),
    )


def test_it_is_known_by_its_entry_point_alone():
    assert adapters.available()["paddle"] == "opscope_paddle:PaddleAdapter"
    points = importlib.metadata.entry_points(group="opscope.costs")
    assert [point.value for point in points if point.name == "paddle"] == ["opscope_paddle.costs"]


def test_every_op_has_shapes_dtypes_a_line_and_a_device(profile):
    ops = profile.ops().filter(pl.col("step").is_not_null())
    assert len(ops) > 50
    assert not ops["device"].has_nulls()
    assert ops["source"].str.contains(r"train\.py:[0-9]+").all()
    of_floats = r"::(conv2d|linear|relu|pool2d|add)(_grad)?$"
    with_tensors = ops.filter(pl.col("op").str.contains(of_floats))
    assert with_tensors["op"].n_unique() == 10
    assert with_tensors["inputs"].str.starts_with("f32[").all()
    assert not with_tensors["dtypes"].has_nulls()


def test_layers_are_paths_in_the_model_in_both_directions(profile):
    ops = profile.ops().filter(pl.col("op").str.contains("conv2d|linear"))
    for direction in ("forward", "backward"):
        layers = set(ops.filter(pl.col("direction") == direction)["layer"])
        assert layers == {"LeNet.conv1", "LeNet.conv2", "LeNet.fc1", "LeNet.fc2"}


def test_every_backward_op_is_linked_to_its_forward_op(profile):
    ops = profile.ops()
    names = dict(ops.select("op_id", "op").rows())
    backward = ops.filter(pl.col("direction") == "backward")
    assert len(backward) >= STEPS * 10
    for op, forward in backward.select("op", "forward_op_id").rows():
        assert op == f"{names[forward]}_grad"


def test_flops_are_those_counted_by_hand(profile):
    """The first convolution's input needs no gradient, so one product of two is computed."""
    per_step = profile.ops().filter(pl.col("step") == 1)
    flops = {
        (layer, direction): total
        for layer, direction, total in per_step.filter(pl.col("op").str.contains("conv2d|linear"))
        .group_by("layer", "direction")
        .agg(pl.col("matrix_flops").sum())
        .rows()
    }
    conv1, conv2 = 2 * BATCH * 6 * 28 * 28 * 25, 2 * BATCH * 16 * 10 * 10 * 6 * 25
    fc1, fc2 = 2 * BATCH * 400 * 120, 2 * BATCH * 120 * 10
    assert flops == {
        ("LeNet.conv1", "forward"): conv1, ("LeNet.conv1", "backward"): conv1,
        ("LeNet.conv2", "forward"): conv2, ("LeNet.conv2", "backward"): 2 * conv2,
        ("LeNet.fc1", "forward"): fc1, ("LeNet.fc1", "backward"): 2 * fc1,
        ("LeNet.fc2", "forward"): fc2, ("LeNet.fc2", "backward"): 2 * fc2,
    }  # fmt: skip


def test_a_transposed_product_has_the_flops_of_its_operands(tmp_path):
    a, b = paddle.ones([3, 4]), paddle.ones([5, 4])
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        paddle.matmul(a, b, transpose_y=True)
        a @ b.t()
    ops = opscope.load(tmp_path / "run.opscope").ops().filter(pl.col("op") == "paddle::matmul")
    assert ops["matrix_flops"].to_list() == [2 * 3 * 4 * 5] * 2


def test_steps_are_counted_by_the_optimizer(profile):
    numbers = profile.ops().filter(pl.col("op") == "paddle::adam_")["step"].unique().drop_nulls()
    assert (
        len(numbers) >= STEPS - 1
    )  # the first capture of a program may begin before a step is told
    assert set(profile.ops().filter(pl.col("op") == "paddle::adam_")["direction"]) == {"optimizer"}


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Momentum"])
def test_results_are_the_same_with_and_without(tmp_path, name):
    def train():
        paddle.seed(1)
        layer = paddle.nn.Linear(4, 4)
        optimizer = getattr(paddle.optimizer, name)(0.1, parameters=layer.parameters())
        x = paddle.randn([8, 4])
        for _ in range(3):
            y = 1 - layer(x) * 2 + x
            (y**2).mean().backward()
            optimizer.step()
            optimizer.clear_grad()
        return layer.weight.numpy().tobytes()

    expected = train()
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        assert train() == expected
    opscope.shutdown()
    assert train() == expected


def test_while_nothing_listens_only_steps_are_hooked_and_shutdown_restores_all(tmp_path):
    before = hooks()
    opscope.init("paddle")
    assert hooks()[:5] == before[:5]
    assert all(now is not then for now, then in zip(hooks()[5:], before[5:], strict=True))
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        assert all(now is not then for now, then in zip(hooks(), before, strict=True))
    assert hooks()[:5] == before[:5]
    opscope.shutdown()
    assert hooks() == before


@pytest.mark.parametrize("function", ["_arguments", "_with_outputs"])
def test_a_fault_of_the_adapter_is_logged_once_and_never_reaches_the_program(
    tmp_path, monkeypatch, caplog, function
):
    import opscope_paddle.ops

    expected, before = example.train(2), hooks()
    opscope.init("paddle")
    monkeypatch.setattr(opscope_paddle.ops, function, lambda *_: 1 / 0)
    run = opscope.capture(tmp_path / "run.opscope", backend="recorder")
    with caplog.at_level(logging.ERROR, "opscope"), run:
        assert example.train(2) == expected
    said = [
        one for one in caplog.records if "PaddlePaddle is no longer observed" in one.getMessage()
    ]
    assert len(said) == 1
    assert hooks() == before


def test_an_old_version_is_refused(monkeypatch):
    monkeypatch.setattr(paddle, "__version__", "2.6.1")
    with pytest.raises(adapters.AdapterError, match=r"paddle 2\.6\.1 is not supported"):
        opscope.init("paddle")


def test_the_example_runs_under_opscope_run(tmp_path):
    command = [sys.executable, "-m", "opscope", "run", "-o", "x", "--", sys.executable]
    done = subprocess.run(
        [*command, str(PACKAGE / "train.py")], cwd=tmp_path, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "loss" in done.stdout
    assert "paddle::conv2d" in done.stderr
