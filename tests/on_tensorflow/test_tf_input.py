"""Waits for tf.data, in a custom loop and inside the graph that Keras's fit runs."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import numpy as np  # noqa: E402
import polars as pl  # noqa: E402

from tests import planted  # noqa: E402


def batches(many: int, seconds: float = 0.0):
    def made():
        for _ in range(many):
            if seconds:
                planted.slowly(seconds)
            yield np.ones((2, 4), np.float32), np.ones((2, 1), np.float32)

    shapes = (tf.TensorSpec((2, 4)), tf.TensorSpec((2, 1)))
    options = tf.data.Options()  # else tf.data reads ahead by itself
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    return tf.data.Dataset.from_generator(made, output_signature=shapes).with_options(options)


def slow_loop(step) -> None:
    for x, y in batches(planted.BATCHES, planted.SLOW_S):
        step(x, y)


def fast_loop(step) -> None:
    for x, y in batches(planted.FAST_BATCHES).prefetch(4):
        step(x, y)
        planted.work()


def test_a_custom_loops_slow_dataset_is_found_and_no_other(recorded):
    weights = tf.Variable(tf.ones((4, 1)))

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weights - y) ** 2)
        weights.assign_sub(0.01 * tape.gradient(loss, weights))

    lines = {name.__name__: name.__code__.co_firstlineno + 1 for name in (slow_loop, fast_loop)}
    profile = recorded(lambda: (slow_loop(step), fast_loop(step)))
    planted.check(
        profile,
        f"test_tf_input.py:{lines['slow_loop']}",
        f"test_tf_input.py:{lines['fast_loop']}",
    )


@pytest.mark.parametrize("eagerly", [False, True], ids=["graph", "eager"])
def test_the_slow_dataset_of_a_fit_is_found_although_the_graph_takes_its_batches(recorded, eagerly):
    def fit():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", run_eagerly=eagerly)
        model.fit(batches(planted.BATCHES, planted.SLOW_S), epochs=1, verbose=0)

    planted.check(recorded(fit), "tf.data", None)


def test_a_fit_with_a_fast_dataset_is_not_accused(recorded):
    class Work(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            planted.work()

    def fit():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        data = batches(planted.FAST_BATCHES).cache()
        for _ in data:  # what the pipeline's start takes is no wait of a step
            pass
        model.fit(data, epochs=1, verbose=0, callbacks=[Work()])

    profile = recorded(fit)
    bound = profile.input_waits().filter(pl.col("input_bound"))
    # the wait in which the iterator of the graph is made
    assert len(bound) <= 1
    in_graph = profile.data_preparation().filter(pl.col("source").is_null())
    assert in_graph["verdict"].to_list() == ["not input-bound"]


def test_each_batch_that_a_graph_takes_has_a_wait_as_long_as_tensorflow_counts(recorded):
    @tf.function
    def take(iterator):
        return tf.reduce_sum(next(iterator)[0])

    def run():
        iterator = iter(batches(planted.BATCHES, planted.SLOW_S))
        for _ in range(planted.BATCHES):
            take(iterator)

    waits = (
        recorded(run).trace["ranges"].filter(pl.col("domain").cast(pl.String) == "opscope.input")
    )
    assert len(waits) == planted.BATCHES
    # a part of the sleep may be over before the batch is asked for
    assert ((waits["end"] - waits["start"]) >= planted.SLOW_S * 1e9 / 2).all()
