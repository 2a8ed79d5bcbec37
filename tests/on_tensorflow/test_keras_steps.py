"""Keras: capturing a range of steps, several steps at a time, and the phases around them."""

from __future__ import annotations

import polars as pl
import pytest

keras = pytest.importorskip("keras")
pytest.importorskip("tensorflow")

import opscope  # noqa: E402
from opscope.callbacks.keras import StepRange  # noqa: E402
from tests.keras_runs import (  # noqa: E402
    X,
    Y,
    a_capture_that_fails,
    a_range_inside_an_execution,
    callbacks_elsewhere,
    captured_range,
    ranges,
    several_at_a_time,
)


def model(**options):
    one = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    one.compile("sgd", "mse", **options)
    return one


def steps(profile):
    return ranges(profile, "step")["text"].to_list()


def test_a_range_of_steps_over_epochs_is_captured(tmp_path):
    profile = captured_range(tmp_path / "some.opscope", "recorder")
    products = profile.ops().filter(
        pl.col("op").cast(pl.String).str.contains("MatMul")
        & (pl.col("direction").cast(pl.String) == "forward")
    )
    # traced before the capture: the specs are told again when it begins
    assert products["inputs"].null_count() == 0
    assert len(products) == 3


def test_windows_have_profiles_of_their_own(tmp_path):
    callback = StepRange(1, 3, tmp_path / "w.opscope", repeat=2, backend="recorder")
    model().fit(X, Y, batch_size=4, epochs=2, verbose=0, callbacks=[callback])
    assert steps(opscope.load(tmp_path / "w.opscope")) == ["step 1", "step 2"]
    assert steps(opscope.load(tmp_path / "w-1.opscope")) == ["step 4", "step 5"]


def test_several_steps_at_a_time_are_told(tmp_path, caplog):
    several_at_a_time(tmp_path / "several.opscope", caplog)


def test_each_execution_with_a_step_of_the_range_is_captured(tmp_path):
    a_range_inside_an_execution(tmp_path)


def test_a_capture_that_fails_does_not_stop_the_training(caplog):
    a_capture_that_fails(caplog)


def test_the_users_own_steps_are_kept(recorded):
    class Own(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            opscope.step(100 + batch)

    profile = recorded(lambda: model().fit(X, Y, batch_size=12, verbose=0, callbacks=[Own()]))
    assert steps(profile) == ["step 100", "step 101"]


def test_evaluation_and_prediction_are_phases(recorded):
    def program():
        one = model()
        one.evaluate(X, Y, verbose=0)
        one.predict(X, verbose=0)

    phases = ranges(recorded(program), "phase")["text"]
    # and, within them, the making of their functions
    assert phases.filter(phases != "compile").to_list() == ["evaluate", "predict"]
    assert (phases == "compile").sum() >= 2


def test_layers_of_an_eager_model_hold_their_ops(recorded):
    def program():
        one = model(run_eagerly=True)
        one.fit(X, Y, batch_size=12, verbose=0)

    ops = recorded(program).ops()
    products = ops.filter(pl.col("op").cast(pl.String) == "MatMul")
    assert products["layer"].null_count() == 0
    assert all("dense" in layer for layer in products["layer"].cast(pl.String))


def test_an_eager_models_optimizer_is_told_by_direction(recorded):
    ops = recorded(lambda: model(run_eagerly=True).fit(X, Y, batch_size=24, verbose=0)).ops()
    updates = ops.filter(pl.col("op").cast(pl.String).str.contains("AssignSub"))
    assert len(updates) >= 2
    assert set(updates["direction"].cast(pl.String)) == {"optimizer"}
    products = ops.filter(pl.col("op").cast(pl.String) == "MatMul")
    assert "optimizer" not in set(products["direction"].cast(pl.String))


def test_layers_of_one_kind_are_told_apart_in_a_graph(recorded):
    """TensorFlow names a layer's scope anew: ``dense`` is ``dense_1`` in the graph."""

    def program():
        keras.utils.clear_session()
        one = keras.Sequential(
            [keras.layers.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)]
        )
        one.compile("sgd", "mse")
        one.fit(X, Y, batch_size=24, verbose=0)

    ops = recorded(program).ops()
    forward = ops.filter(
        pl.col("op").cast(pl.String).str.contains("MatMul")
        & (pl.col("direction").cast(pl.String) == "forward")
    ).sort("start")
    assert forward["layer"].cast(pl.String).to_list() == ["sequential/dense", "sequential/dense_1"]
    assert [shape.split(", ")[1] for shape in forward["inputs"].cast(pl.String)] == [
        "f32[4,3]",
        "f32[3,1]",
    ]


def test_mixed_precision_multiplies_in_bfloat16(recorded):
    def program():
        keras.utils.clear_session()
        policy = keras.mixed_precision.dtype_policy()
        keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
        try:
            model().fit(X, Y, batch_size=24, verbose=0)
        finally:
            keras.mixed_precision.set_dtype_policy(policy)

    ops = recorded(program).ops()
    products = ops.filter(pl.col("op").cast(pl.String).str.contains("MatMul"))
    assert len(products) >= 2
    assert all(shape.startswith("bf16[24,") for shape in products["inputs"].cast(pl.String))
    assert set(products["layer"].cast(pl.String)) == {"sequential/dense"}
    weights = ops.filter(pl.col("op").cast(pl.String).str.contains("AssignSub"))
    assert all("f32" in shape for shape in weights["inputs"].cast(pl.String))


def test_keras_calls_the_users_callbacks_on_the_thread_that_it_takes_alone(tmp_path):
    callbacks_elsewhere(tmp_path / "elsewhere.opscope")
