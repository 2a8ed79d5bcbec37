"""Keras on PyTorch: layers by their paths, steps, the optimizer, phases, and what is restored."""

from __future__ import annotations

import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import polars as pl
import pytest

torch = pytest.importorskip("torch")
keras = pytest.importorskip("keras")
if keras.backend.backend() != "torch":
    pytest.skip("Keras runs on another backend", allow_module_level=True)

import opscope  # noqa: E402
from opscope.core.capture import session  # noqa: E402
from tests.keras_runs import (  # noqa: E402
    BATCH,
    STEPS,
    X,
    Y,
    callbacks_elsewhere,
    captured_range,
    example,
    ranges,
    saved_and_loaded,
    small,
)

pytestmark = pytest.mark.usefixtures("unobserved")


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    return example(tmp_path_factory.mktemp("keras"), "recorder")


@pytest.fixture(scope="module")
def trained(profile) -> pl.DataFrame:
    """The ops inside steps."""
    ops = profile.ops().with_columns(pl.col("layer", "direction", "op", "op_type").cast(pl.String))
    found = ops.filter(pl.col("step").is_not_null())
    assert len(found) > STEPS * 50
    return found


def test_layers_are_keras_paths_forward_and_backward(trained):
    names = [
        "conv2d",
        "max_pooling2d",
        "conv2d_1",
        "max_pooling2d_1",
        "dropout",
        "dense",
        "dense_1",
    ]
    forward = trained.filter(pl.col("direction") == "forward")["layer"].drop_nulls()
    backward = trained.filter(pl.col("direction") == "backward")["layer"].drop_nulls()
    for name in names:
        assert f"sequential/{name}" in set(forward)
        assert f"sequential/{name}" in set(backward)
    ways = trained.filter(pl.col("direction").is_in(["forward", "backward"]))
    with_layer = ways.filter(pl.col("layer").is_not_null())
    assert with_layer["self_time"].sum() >= 0.95 * ways["self_time"].sum()


def test_matrix_flops_are_those_of_the_layers(trained):
    expected = {}
    for name, (side, taps, into, out) in {
        "conv2d": (26, 9, 1, 16),
        "conv2d_1": (11, 9, 16, 32),
    }.items():
        one = 2 * BATCH * side * side * out * taps * into
        # the images need no gradient
        expected[f"sequential/{name}"] = one * (2 if into == 1 else 3)
    for name, into, out in (("dense", 800, 64), ("dense_1", 64, 10)):
        expected[f"sequential/{name}"] = 3 * 2 * BATCH * into * out
    rows = trained.group_by("layer").agg(pl.col("matrix_flops").sum()).rows()
    found = {layer: flops for layer, flops in rows if flops}
    assert found == {layer: STEPS * flops for layer, flops in expected.items()}


def test_a_step_is_a_batch_and_building_the_model_is_none(profile):
    steps = ranges(profile, "step")
    assert steps["text"].to_list() == [f"step {n}" for n in range(STEPS)]
    epochs = ranges(profile, "phase").filter(pl.col("text").str.starts_with("epoch"))
    assert epochs["text"].to_list() == ["epoch 0", "epoch 1"]
    assert steps["start"].min() >= epochs["start"].min()
    assert steps["end"].max() <= epochs["end"].max()


def test_each_step_has_a_forward_a_backward_and_an_optimizer_phase(profile, trained):
    steps = ranges(profile, "step")
    phases = ranges(profile, "phase").filter(pl.col("domain") == "opscope.torch")
    for start, end in steps.select("start", "end").rows():
        inside = phases.filter((pl.col("start") >= start) & (pl.col("end") <= end))
        assert inside["text"].to_list() == ["forward", "backward", "optimizer"]
    batches = phases.filter(pl.col("text") == "input")
    assert len(batches) >= STEPS
    adam = trained.filter(pl.col("direction") == "optimizer")
    assert set(adam["step"]) == set(range(STEPS))


def test_a_range_of_steps_is_captured(tmp_path):
    captured_range(tmp_path / "some.opscope", "recorder")


def test_evaluation_and_prediction_are_phases(tmp_path):
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        one = small()
        one.evaluate(X, Y, verbose=0)
        one.predict(X, verbose=0)
    profile = opscope.load(tmp_path / "run.opscope")
    told = ranges(profile, "phase").filter(pl.col("domain") == "opscope.keras")
    assert told["text"].to_list() == ["evaluate", "predict"]
    assert ranges(profile, "step").is_empty()


def test_a_loop_of_pytorchs_own_over_a_keras_model_has_steps(tmp_path):
    one = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1, name="only")])
    optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
    with opscope.capture(tmp_path / "loop.opscope", backend="recorder"):
        for _ in range(3):
            optimizer.zero_grad()
            one(torch.from_numpy(X)).mean().backward()
            optimizer.step()
    profile = opscope.load(tmp_path / "loop.opscope")
    assert profile.summary()["steps"].item() == 3
    layers = profile.ops()["layer"].cast(pl.String).drop_nulls()
    assert any(layer.endswith("/only") for layer in layers)


def test_modules_of_pytorch_within_keras_layers_go_by_the_layers_path(tmp_path):
    class Mixed(keras.layers.Layer):
        def __init__(self):
            super().__init__(name="mixed")
            self.inner = torch.nn.Linear(4, 2)

        def call(self, x):
            return self.inner(x)

    one = keras.Sequential([keras.layers.Input((4,)), Mixed()], name="net")
    with opscope.capture(tmp_path / "mixed.opscope", backend="recorder"):
        one(torch.from_numpy(X))
    ops = opscope.load(tmp_path / "mixed.opscope").ops()
    products = ops.filter(pl.col("matrix_flops") > 0)["layer"].cast(pl.String).to_list()
    assert products
    assert all(layer.startswith("net/mixed") for layer in products)


@pytest.mark.slow
def test_a_compiled_model_is_one_graph_and_has_its_steps(tmp_path):
    counted = pytest.importorskip("torch._dynamo.testing").CompileCounter()
    monkey = pytest.MonkeyPatch()
    compiled = torch.compile
    monkey.setattr(torch, "compile", lambda fn, **_: compiled(fn, backend=counted))
    try:

        def graphs(observed):
            torch._dynamo.reset()
            counted.clear()
            if observed:
                with opscope.capture(tmp_path / "c.opscope", backend="recorder"):
                    small(jit_compile=True).fit(X, Y, batch_size=8, verbose=0)
                opscope.shutdown()
            else:
                small(jit_compile=True).fit(X, Y, batch_size=8, verbose=0)
            return counted.frame_count

        assert graphs(True) == graphs(False)
    finally:
        monkey.undo()
        torch._dynamo.reset()
    assert opscope.load(tmp_path / "c.opscope").summary()["steps"].item() == 3


def test_turning_off_restores_every_method():
    from keras.src.callbacks.callback_list import CallbackList
    from keras.src.layers.layer import Layer
    from keras.src.optimizers.base_optimizer import BaseOptimizer
    from keras.src.trainers.trainer import Trainer

    places = [
        (CallbackList, "__init__"),
        (Layer, "__call__"),
        (BaseOptimizer, "apply"),
        (Trainer, "_symbolic_build"),
    ]

    def methods():
        return [vars(owner)[name] for owner, name in places]

    before = methods()
    opscope.init()
    assert all(now is not was for now, was in zip(methods(), before, strict=True))
    opscope.shutdown()
    assert methods() == before
    assert not session._optimizers


def test_a_saved_model_is_the_same_after_loading(tmp_path):
    saved_and_loaded(tmp_path / "one.keras")


def test_keras_calls_the_users_callbacks_on_the_thread_that_it_takes_alone(tmp_path):
    callbacks_elsewhere(tmp_path / "elsewhere.opscope")
