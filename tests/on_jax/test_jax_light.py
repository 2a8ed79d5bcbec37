"""Light mode of JAX and of Keras on it: steps, waits for batches, memory, slow spells."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.keras_light import PROGRAM
from tests.light_runs import STEPS, assert_phases, assert_planted, watched

pytest.importorskip("jax")

MODEL = """
    import jax, jax.numpy as jnp
    import numpy as np

    @jax.jit
    def train(weights, x):
        loss = lambda w: jnp.mean((x @ w) ** 2)
        return weights - 0.1 * jax.grad(loss)(weights)

    weights = jnp.ones((4, 1))
"""
#: The program counts its steps, and has no loader that opscope knows.
CALLED = (
    MODEL
    + """
    import opscope

    for step in range(STEPS):
        between(step)
        fetched()
        weights = jax.block_until_ready(train(weights, np.full((2, 4), step / 100, "float32")))
        opscope.step()
    print(weights.tolist())
"""
)
#: Batches come between the steps, which jax.profiler's annotation marks.
ANNOTATED = (
    MODEL
    + """
    import grain.python as grain

    class Source:
        def __len__(self):
            return STEPS
        def __getitem__(self, index):
            fetched()
            return np.full((2, 4), index / 100, "float32")

    loader = grain.DataLoader(
        data_source=Source(), sampler=grain.SequentialSampler(STEPS, shard_options=grain.NoSharding()),
        read_options=grain.ReadOptions(num_threads=0, prefetch_buffer_size=0),
    )
    for step, batch in enumerate(loader):
        between(step)
        with jax.profiler.StepTraceAnnotation("train", step_num=step):
            weights = jax.block_until_ready(train(weights, batch))
    print(weights.tolist())
"""
)
HAS_KERAS = pytest.mark.skipif(find_spec("keras") is None, reason="Keras is not installed")
HAS_GRAIN = pytest.mark.skipif(find_spec("grain") is None, reason="Grain is not installed")
JAX = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}


@HAS_KERAS
def test_each_step_of_keras_has_its_wait_and_the_training_is_the_same(tmp_path):
    assert_phases(watched(tmp_path, PROGRAM, planted=False, **JAX), 60, {"input"})


@HAS_KERAS
def test_what_is_wrong_with_a_training_of_keras_is_found(tmp_path):
    assert_planted(watched(tmp_path, PROGRAM, planted=True, steps=STEPS, **JAX))


def test_each_step_that_the_program_counts_is_measured(tmp_path):
    assert_phases(watched(tmp_path, CALLED, planted=False, **JAX), 59, set())


def test_what_is_wrong_with_a_loop_of_the_programs_own_is_found(tmp_path):
    assert_planted(watched(tmp_path, CALLED, planted=True, steps=STEPS, **JAX), waits=False)


@HAS_GRAIN
def test_each_annotated_step_has_the_wait_for_its_batch(tmp_path):
    assert_phases(watched(tmp_path, ANNOTATED, planted=False, **JAX), 60, {"input"})


@HAS_GRAIN
def test_what_is_wrong_with_annotated_steps_is_found(tmp_path):
    assert_planted(watched(tmp_path, ANNOTATED, planted=True, steps=STEPS, **JAX))
