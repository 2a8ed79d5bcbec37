"""Light mode of TensorFlow and of Keras on it: steps, memory, slow spells. Batches are taken in the graph."""

from __future__ import annotations

import pytest

from tests.keras_light import PROGRAM
from tests.light_runs import STEPS, assert_phases, assert_planted, watched

pytest.importorskip("tensorflow")

LOOP = """
    import tensorflow as tf

    tf.random.set_seed(0)
    weights = tf.Variable(tf.random.normal((4, 1)))

    @tf.function
    def train(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x @ weights))
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        return loss

    for step in range(STEPS):
        between(step)
        fetched()
        loss = train(tf.fill((2, 4), step / 100))
    print(float(loss), weights.numpy().tolist())
"""
KERAS = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
PROGRAMS = [("keras", PROGRAM, 60), ("loop", LOOP, 60)]


@pytest.mark.parametrize(("name", "program", "steps"), PROGRAMS, ids=[one[0] for one in PROGRAMS])
def test_each_step_is_measured_and_the_training_is_the_same(name, program, steps, tmp_path):
    assert_phases(watched(tmp_path, program, planted=False, **KERAS), steps, set())


@pytest.mark.parametrize(("name", "program", "steps"), PROGRAMS, ids=[one[0] for one in PROGRAMS])
def test_what_is_wrong_with_a_training_is_found_but_its_input(name, program, steps, tmp_path):
    profile = watched(tmp_path, program, planted=True, steps=STEPS, **KERAS)
    assert_planted(profile, waits=False)
    reasons = dict(profile.light().select("phase", "reason").rows())
    assert "inside the graph" in reasons["input"]
