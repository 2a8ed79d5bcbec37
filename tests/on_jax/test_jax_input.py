"""Waits for input in JAX programs: Keras's fit, and Grain where it is installed."""

from __future__ import annotations

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import numpy as np
import pytest

import opscope
from tests import planted

jax = pytest.importorskip("jax")

pytestmark = pytest.mark.usefixtures("unobserved")


@pytest.fixture
def recorded(tmp_path):
    def record(function):
        with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
            function()
        return opscope.load(tmp_path / "run.opscope")

    return record


def test_the_slow_loader_of_a_keras_fit_is_found_and_no_other(recorded):
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "jax":
        pytest.skip("Keras runs on another backend")

    class Slow(keras.utils.PyDataset):
        def __len__(self):
            return planted.BATCHES

        def __getitem__(self, index):
            planted.slowly()
            return np.ones((2, 4), np.float32), np.ones((2, 1), np.float32)

    class Work(keras.layers.Layer):  # what callbacks do is in no step
        def call(self, x):
            planted.work()
            return x

    def fit():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(Slow(), verbose=0)
        rows = 2 * planted.FAST_BATCHES
        x, y = np.ones((rows, 4), np.float32), np.ones((rows, 1), np.float32)
        model = keras.Sequential([keras.Input((4,)), Work(), keras.layers.Dense(1)])
        model.compile("sgd", "mse", run_eagerly=True)
        model.fit(x, y, batch_size=2, verbose=0)

    profile = recorded(fit)
    planted.check(profile, "keras of PyDatasetAdapter", "keras of ArrayDataAdapter")


class Images:
    def __init__(self, many: int, seconds: float = 0.0) -> None:
        self.many, self.seconds = many, seconds

    def __len__(self):
        return self.many

    def __getitem__(self, index):
        if self.seconds:
            planted.slowly(self.seconds)
        return np.full(4, index, np.float32)


def sums(batches, work=lambda: None) -> list[float]:
    add, found = jax.jit(lambda x: (x @ x).sum()), []
    for x in batches:
        opscope.step()
        found.append(float(add(x)))
        work()
    return found


def grain_loops() -> list[float]:
    import grain

    def loader(many, seconds=0.0):
        return grain.DataLoader(
            data_source=Images(many, seconds),
            sampler=grain.samplers.IndexSampler(many, shuffle=False, seed=0, num_epochs=1),
            worker_count=0,
            # nothing is read ahead: the program waits for each element
            read_options=grain.ReadOptions(num_threads=0, prefetch_buffer_size=0),
        )

    pipeline = grain.MapDataset.source(Images(planted.FAST_BATCHES)).map(lambda x: x + 1)
    fast = pipeline.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
    return sums(loader(planted.BATCHES, planted.SLOW_S)) + sums(fast, planted.work)


def test_a_slow_loader_of_grain_is_found_and_no_other_and_results_are_the_same(recorded):
    pytest.importorskip("grain")
    alone, found = grain_loops(), []
    opscope.init(["jax", "grain"])
    profile = recorded(lambda: found.extend(grain_loops()))
    assert found == alone
    planted.check(profile, "grain.DataLoader of Images", "grain of ", "test_jax_input.py")


def test_the_hooks_of_grain_are_gone_after_the_capture(recorded):
    pytest.importorskip("grain")
    from grain._src.python import data_loader
    from grain._src.python.dataset import dataset

    kinds = (data_loader.DataLoaderIterator, "__next__"), (dataset._OutputIterDataset, "__iter__")
    grain_loops()
    before = [vars(kind)[name] for kind, name in kinds]
    opscope.init(["grain"])
    recorded(grain_loops)
    assert [vars(kind)[name] for kind, name in kinds] == before
