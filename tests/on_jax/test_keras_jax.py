"""Keras on JAX: layers, steps, epochs, phases, input time, a range of steps, and what is restored."""

from __future__ import annotations

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import polars as pl
import pytest

import opscope

jax = pytest.importorskip("jax")
keras = pytest.importorskip("keras")
if keras.backend.backend() != "jax":
    pytest.skip("Keras runs on another backend", allow_module_level=True)

from tests.keras_runs import (  # noqa: E402
    BATCH,
    STEPS,
    X,
    Y,
    a_range_inside_an_execution,
    callbacks_elsewhere,
    captured_range,
    example,
    ranges,
    saved_and_loaded,
    several_at_a_time,
    small,
)
from tests.nvtx_tool import build, hear  # noqa: E402

pytestmark = pytest.mark.usefixtures("unobserved")
FRAMES = "jax_traceback_in_locations_limit"


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    kept = jax.config.jax_traceback_in_locations_limit
    jax.config.update(FRAMES, 100)  # what it is in newer ones; in JAX 0.6 all ten were Keras's
    found = example(tmp_path_factory.mktemp("keras"), "xplane")
    jax.config.update(FRAMES, kept)
    return found


@pytest.fixture(scope="module")
def model(profile) -> pl.DataFrame:
    """The operations of the training step."""
    ops = profile.ops().with_columns(pl.col("layer", "direction", "op_type").cast(pl.String))
    found = ops.filter(
        pl.col("params").cast(pl.String).str.contains("jit(train_step)", literal=True)
    )
    assert len(found) > STEPS * 50
    return found


def share(part: pl.DataFrame, whole: pl.DataFrame) -> float:
    return part["self_time"].sum() / whole["self_time"].sum()


def test_op_time_has_shapes_layers_and_forward_ops(profile, model):
    ops = profile.ops()
    described = ops.filter(pl.col("outputs").is_not_null() & pl.col("dtypes").is_not_null())
    assert share(described, ops) >= 0.99
    assert share(model.filter(pl.col("layer").is_not_null()), model) >= 0.95
    backward = model.filter(pl.col("direction") == "backward")
    assert share(backward.filter(pl.col("forward_op_id").is_not_null()), backward) >= 0.95
    layers = ("conv2d", "max_pooling2d", "conv2d_1", "max_pooling2d_1", "dense", "dense_1")
    for layer in layers:
        ways = set(model.filter(pl.col("layer") == f"sequential/{layer}")["direction"])
        assert {"forward", "backward"} <= ways, layer
    assert set(model.filter(pl.col("direction") == "optimizer")["layer"]) == {"adam"}


def test_matrix_flops_are_those_of_the_layers(model):
    """By hand: (layer, direction) → FLOP of all steps."""
    expected = {}
    sizes = {"conv2d": (26, 9, 1, 16), "conv2d_1": (11, 9, 16, 32)}
    for name, (side, taps, into, out) in sizes.items():
        one = 2 * BATCH * side * side * out * taps * into
        expected[name, "forward"] = one
        expected[name, "backward"] = one  # of the weights; below also of the input
    full = 2 * BATCH * 13 * 13 * 16 * 9 * 32  # as XLA computes it: over the padded result
    expected["conv2d_1", "backward"] += full
    for name, into, out in (("dense", 800, 64), ("dense_1", 64, 10)):
        expected[name, "forward"] = 2 * BATCH * into * out
        expected[name, "backward"] = 2 * expected[name, "forward"]
    rows = model.group_by("layer", "direction").agg(pl.col("matrix_flops").sum()).rows()
    assert {(layer, way): flops for layer, way, flops in rows if flops} == {
        (f"sequential/{layer}", way): STEPS * flops for (layer, way), flops in expected.items()
    }


def test_sources_are_the_programs_own_lines(model):
    sources = model["source"].cast(pl.String).drop_nulls().unique().to_list()
    assert sources
    ours = (
        "opscope/adapters/",
        "opscope/core/",
        "opscope/callbacks/",
    )  # the folder of a clone is opscope too
    assert all("keras_cnn.py:" in one for one in sources)
    assert not any(folder in one for one in sources for folder in ours)


def test_steps_epochs_and_batches_are_ranges(profile):
    steps = ranges(profile, "step")
    assert steps["text"].to_list() == [f"step {n}" for n in range(STEPS)]
    phases = ranges(profile, "phase").filter(pl.col("domain") == "opscope.keras")
    epochs = phases.filter(pl.col("text").str.starts_with("epoch"))
    assert epochs["text"].to_list() == ["epoch 0", "epoch 1"]
    # one batch more is looked at to build the model, and each epoch asks once more than it gets
    batches = phases.filter(pl.col("text") == "input")
    assert STEPS <= len(batches) <= STEPS + 3
    inside = batches.filter(
        (pl.col("start") >= epochs["start"].min()) & (pl.col("end") <= epochs["end"].max())
    )
    assert len(inside) >= STEPS


def test_layers_are_no_ranges_while_a_program_is_traced(profile):
    """In a traced call nothing runs; the paths of operations tell their layers."""
    steps = ranges(profile, "step")
    layers = ranges(profile, "layer").filter(pl.col("start") >= steps["start"].min())
    assert layers.is_empty()


def test_a_range_of_steps_is_captured(tmp_path):
    profile = captured_range(tmp_path / "some.opscope", "xplane")
    ops = profile.ops().with_columns(pl.col("layer", "direction").cast(pl.String))
    is_only = pl.col("layer").str.ends_with("/only")
    products = ops.filter(is_only, pl.col("direction") == "forward")
    # compiled before the capture: the profiler writes the programs all the same
    assert products["inputs"].null_count() == 0
    assert len(products) > 0


def test_several_steps_at_a_time_are_told(tmp_path, caplog):
    several_at_a_time(tmp_path / "several.opscope", caplog)


def test_each_execution_with_a_step_of_the_range_is_captured(tmp_path):
    a_range_inside_an_execution(tmp_path)


def test_evaluation_and_prediction_are_phases_and_layers_of_eager_calls_ranges(tmp_path):
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        one = small(run_eagerly=True)
        one.fit(X, Y, batch_size=12, verbose=0)
        one.evaluate(X, Y, verbose=0)
        one.predict(X, verbose=0)
    profile = opscope.load(tmp_path / "run.opscope")
    phases = ranges(profile, "phase").filter(pl.col("domain") == "opscope.keras")
    named = phases.filter(~pl.col("text").is_in(["input"]))["text"].to_list()
    assert named == ["epoch 0", "evaluate", "predict"]
    steps = ranges(profile, "step")
    assert len(steps) == 2
    layers = ranges(profile, "layer").filter(pl.col("text").str.ends_with("only"))
    for start, end in steps.select("start", "end").rows():
        assert layers.filter((pl.col("start") >= start) & (pl.col("end") <= end)).height == 1


def test_steps_epochs_and_batches_are_nvtx_ranges(tmp_path):
    program = """
import opscope
opscope.init()
import keras, numpy as np
one = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1, name="only")])
one.compile("sgd", "mse", run_eagerly=True)
one.fit(np.ones((24, 4)), np.ones((24, 1)), batch_size=12, verbose=0)
"""
    heard = hear(program, build(tmp_path), tmp_path, KERAS_BACKEND="jax")
    steps = heard.of("push", domain="opscope.step")
    assert [(event.text, event.payload) for event in steps] == [("step", 0), ("step", 1)]
    told = [event for event in heard.events if event.kind in ("push", "pop")]
    keras_told = [event for event in told if event.domain == "opscope.keras"]
    assert [event.kind for event in keras_told].count("push") == len(keras_told) / 2
    names = [event.text for event in keras_told if event.kind == "push"]
    assert names.count("epoch 0") == 1
    assert names.count("input") >= 2
    # each step holds its layers
    inside, texts = False, []
    for event in told:
        if event.domain == "opscope.step":
            inside = event.kind == "push"
        elif inside and event.kind == "push" and event.text.endswith("only"):
            texts.append(event.text)
    assert texts == ["sequential/only"] * 2


def test_turning_off_restores_every_method():
    from keras.src.backend.jax.trainer import JAXEpochIterator
    from keras.src.callbacks.callback_list import CallbackList
    from keras.src.layers.layer import Layer

    def methods():
        return (
            vars(CallbackList)["__init__"],
            vars(JAXEpochIterator)["_get_iterator"],
            vars(Layer)["stateless_call"],
            vars(Layer)["__call__"],
        )

    before = methods()
    opscope.init()
    during = methods()
    assert during[0] is not before[0]
    assert during[1] is not before[1]
    assert during[2] is not before[2]
    opscope.shutdown()
    assert methods() == before


def test_a_saved_model_is_the_same_after_loading(tmp_path):
    saved_and_loaded(tmp_path / "one.keras")


def test_keras_that_cannot_tell_whether_a_graph_is_made_goes_on_unobserved(
    tmp_path, monkeypatch, caplog
):
    from opscope.adapters import keras as adapter

    layer, x = keras.layers.Dense(2, kernel_initializer="ones"), keras.ops.ones((1, 3))
    expected = layer(x).tolist()
    monkeypatch.setattr(adapter, "_tracing", lambda: lambda: 1 / 0)
    try:
        with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
            assert layer(x).tolist() == expected
            assert layer(x).tolist() == expected
    finally:
        opscope.shutdown()
    assert caplog.text.count("Keras is no longer observed") == 1


def test_keras_calls_the_users_callbacks_on_the_thread_that_it_takes_alone(tmp_path):
    callbacks_elsewhere(tmp_path / "elsewhere.opscope")
