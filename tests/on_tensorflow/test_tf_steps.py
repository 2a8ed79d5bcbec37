"""Steps of loops of one's own: one function, several, other sizes, Keras's fit, none at all."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

tf = pytest.importorskip("tensorflow")
import keras  # noqa: E402

import opscope  # noqa: E402
from opscope.core.capture import session  # noqa: E402


def trainer(name="train"):
    w = tf.Variable(tf.ones((3, 1)))

    def train(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(x, w))
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return loss

    train.__name__ = name
    return tf.function(train)


def steps(profile):
    ranges = profile.trace["ranges"].filter(pl.col("category").cast(pl.String) == "step")
    closed = ranges.filter(~pl.col("attrs").fill_null("").str.contains("unclosed"))
    return closed.sort("start")["text"].cast(pl.String).to_list()


def products(profile):
    ops = profile.ops().sort("start")
    return ops.filter(pl.col("op").cast(pl.String).str.contains("MatMul"))


X = np.ones((4, 3), "float32")


def test_each_run_of_a_training_function_is_a_step(recorded):
    train, evaluate = trainer(), tf.function(lambda x: tf.reduce_sum(x))

    def program():
        for size in (4, 4, 2, 4):  # traced anew for the third
            train(tf.constant(X[:size]))
            evaluate(tf.constant(X))

    profile = recorded(program)
    assert steps(profile) == ["step 0", "step 1", "step 2", "step 3"]
    forward = products(profile).filter(pl.col("direction").cast(pl.String) == "forward")
    assert forward["step"].to_list() == [0, 1, 2, 3]


def test_of_several_functions_the_last_of_the_round_ends_the_step(recorded):
    first, second = trainer("critic"), trainer("generator")

    def program():
        for _ in range(3):
            first(tf.constant(X))
            second(tf.constant(X))

    profile = recorded(program)
    assert steps(profile) == ["step 0", "step 1", "step 2"]
    forward = products(profile).filter(pl.col("direction").cast(pl.String) == "forward")
    assert forward["step"].to_list() == [0, 0, 1, 1, 2, 2]


def notes(profile, severity):
    return [one["what"] for one in profile.notes().to_dicts() if one["severity"] == severity]


def test_functions_that_run_unequally_often_are_told(recorded):
    critic, generator = trainer("critic"), trainer("generator")

    def program(rounds):
        for _ in range(3):
            for _ in range(rounds):
                critic(tf.constant(X))
            generator(tf.constant(X))

    (told,) = notes(recorded(lambda: program(2)), "warning")
    assert "do not run equally often" in told
    assert "opscope.step()" in told


def test_rounds_that_are_even_are_told_by_what_they_are_counted(recorded):
    train = trainer()
    profile = recorded(lambda: [train(tf.constant(X)) for _ in range(3)])
    assert notes(profile, "warning") == []
    (told,) = [one for one in notes(profile, "info") if "a step is a run of" in one]
    assert "opscope.step()" in told


def test_an_eager_loop_has_no_steps_until_it_tells_them(recorded):
    from opscope.core.analysis.summary.summary_table import summary_table as summary

    w = tf.Variable(tf.ones((3, 1)))

    def program():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(tf.constant(X), w))
        w.assign_sub(0.1 * tape.gradient(loss, w))

    profile = recorded(lambda: [program() for _ in range(2)])
    assert steps(profile) == []
    (told,) = [one for one in summary(profile).footnotes if "step" in one]
    assert told.startswith("no steps were recorded: call opscope.step()")
    looked = recorded(lambda: tf.matmul(tf.constant(X), w), "looked.opscope")  # no training
    assert not any("step" in one for one in summary(looked).footnotes)


def test_what_does_not_train_is_no_step(recorded):
    w = tf.Variable(1.0)
    count = tf.function(lambda: w.assign_add(1.0))
    look = tf.function(lambda x: tf.gradients(tf.reduce_sum(x * x), x))

    def program():
        for _ in range(3):
            count()
            look(tf.ones(3))

    assert steps(recorded(program)) == []


def test_the_users_own_steps_alone_count(recorded):
    train = trainer()

    def program():
        for number in (10, 20, 30):
            opscope.step(number)
            train(tf.constant(X))

    assert steps(recorded(program)) == ["step 10", "step 20"]


def test_keras_fit_tells_its_own_and_train_on_batch_is_seen(recorded):
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    y = np.ones((4, 1), "float32")

    assert steps(recorded(lambda: model.fit(X, y, batch_size=2, epochs=2, verbose=0))) == [
        f"step {number}" for number in range(4)
    ]
    later = recorded(lambda: [model.train_on_batch(X, y) for _ in range(3)], "batches.opscope")
    assert len(steps(later)) == 3


def test_steps_are_counted_while_nothing_listens():
    """So that a capture can wait for its first step."""
    heard = []
    opscope.init(["tensorflow"])
    undo = session.on_step(heard.append)
    train = trainer()
    for _ in range(3):
        train(tf.constant(X))
    undo()
    assert [
        number for number, before in zip(heard, [None, *heard], strict=False) if number != before
    ] == [0, 1, 2, 3]


def test_iterations_that_set_variables_are_steps_although_one_also_saves(recorded, tmp_path):
    w = tf.Variable(tf.ones((4, 4)))
    saved = tf.train.Checkpoint(w=w)

    def program():
        for _ in range(20):  # builds data
            tf.reduce_mean(tf.ones((4, 4)) * 2.0)
        for step in range(10):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.matmul(tf.ones((4, 4)), w) ** 2)
            w.assign_sub(0.1 * tape.gradient(loss, w))
            if step == 5:
                saved.write(str(tmp_path / "saved"))

    profile = recorded(program)
    assert profile.summary()["steps"].item() == 10
    saves = profile.trace["ranges"].cast({"text": str}).filter(pl.col("text") == "checkpoint")
    assert len(saves) == 1
