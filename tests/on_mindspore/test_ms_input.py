"""Waits for MindSpore's datasets, in a custom loop and in Model.train."""

from __future__ import annotations

import time

import pytest

ms = pytest.importorskip("mindspore")

import numpy as np  # noqa: E402
from mindspore import dataset, nn  # noqa: E402

from tests import planted  # noqa: E402


class Images:
    def __init__(self, batches: int, seconds: float = 0.0) -> None:
        self.batches, self.seconds = batches, seconds

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, index):
        if self.seconds:
            planted.slower_than_steps(self.seconds)
        return np.ones(4, np.float32), np.ones(1, np.float32)


@pytest.fixture(autouse=True)
def _read_little_ahead():
    """Else MindSpore reads 16 elements ahead of each part of the pipeline, while the first step compiles."""
    before = dataset.config.get_prefetch_size()
    dataset.config.set_prefetch_size(1)
    yield
    dataset.config.set_prefetch_size(before)


def batches(many: int, seconds: float = 0.0):
    made = dataset.GeneratorDataset(
        Images(many, seconds), ["x", "y"], num_parallel_workers=1, python_multiprocessing=False
    )
    return made.batch(1)


def slow_loop(step) -> None:
    for x, y in batches(planted.BATCHES + 10, 4 * planted.SLOW_S).create_tuple_iterator():
        begun = time.monotonic()
        step(x, y)
        planted.step_took(time.monotonic() - begun)


def fast_loop(step) -> None:
    for x, y in batches(planted.FAST_BATCHES).create_tuple_iterator():
        step(x, y)
        planted.work()


class Told(ms.train.Callback):
    def on_train_step_begin(self, run_context):
        self.begun = time.monotonic()

    def on_train_step_end(self, run_context):
        planted.step_took(time.monotonic() - self.begun)


def made():
    net, loss = nn.Dense(4, 1), nn.MSELoss()
    return net, loss, nn.SGD(net.trainable_params(), 0.01)


def test_a_custom_loops_slow_dataset_is_found_and_no_other(recorded):
    net, loss, optimizer = made()
    forward = ms.value_and_grad(lambda x, y: loss(net(x), y), None, optimizer.parameters)

    def step(x, y):
        optimizer(forward(x, y)[1])

    x, y = next(batches(1).create_tuple_iterator())
    step(x, y)  # compiled before
    lines = {one.__name__: one.__code__.co_firstlineno + 1 for one in (slow_loop, fast_loop)}
    profile = recorded(lambda: (slow_loop(step), fast_loop(step)))
    found = {row["source"]: row for row in profile.data_preparation().rows(named=True)}
    slow, fast = (
        next(row for source, row in found.items() if f"test_ms_input.py:{lines[name]}" in source)
        for name in ("slow_loop", "fast_loop")
    )
    assert slow["loader"] == fast["loader"] == "mindspore.dataset of GeneratorDataset"
    assert (slow["verdict"], fast["verdict"]) == ("input-bound", "not input-bound")
    assert slow["batch"] == 1


def test_the_slow_dataset_of_a_training_is_found(recorded):
    def train():
        net, loss, optimizer = made()
        model = ms.train.Model(net, loss, optimizer)
        slow = batches(planted.BATCHES + 10, 4 * planted.SLOW_S)
        model.train(2, slow, callbacks=[Told()], dataset_sink_mode=False)

    profile = recorded(train)
    loader = profile.data_preparation().row(0, named=True)
    assert loader["verdict"] == "input-bound", loader
    assert loader["steps"] == 2 * (planted.BATCHES + 10)
    waits = profile.input_waits()
    assert waits["reason"].null_count() == len(waits) == loader["steps"]
    # waits lie between two steps: they belong to the later one, and to its time
    assert (waits["input_wait"] < waits["duration"]).all()
