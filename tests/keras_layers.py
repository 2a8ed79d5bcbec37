"""Keras's layers, whatever the backend: each stands in its model, wherever and whenever it was built."""

from __future__ import annotations

import numpy as np
import pytest

import opscope

IMAGES, TARGETS = np.ones((8, 6, 6, 3), "float32"), np.ones((8, 2), "float32")
#: Layers that run ops whatever the backend; ``act`` has no weights.
PARTS = ("conv", "act", "fc")


def functional():
    """A model of layers that are built before it is."""
    from keras import Input, Model, layers

    images = Input((6, 6, 3))
    h = layers.Conv2D(4, 3, name="conv")(images)
    h = layers.Flatten(name="flat")(layers.ReLU(name="act")(h))
    return Model(images, layers.Dense(2, name="fc")(h), name="net")


def sequential():
    """One whose layers are built when it is first called."""
    from keras import Sequential, layers

    parts = [layers.Conv2D(4, 3, name="conv"), layers.ReLU(name="act"), layers.Flatten(name="flat")]
    return Sequential([*parts, layers.Dense(2, name="fc")], name="net")


#: For ``pytest.mark.parametrize("made, eager", …)``.
MODELS = [
    pytest.param(made, eager, id=f"{made.__name__}-{'eager' if eager else 'compiled'}")
    for made in (functional, sequential)
    for eager in (False, True)
]


def layers_of(path, made, *, eager: bool, backend: str) -> set[str]:
    """The layers of ops of a training, its model made while that is recorded."""
    import keras

    keras.backend.clear_session()
    with opscope.capture(path, backend=backend):
        model = made()
        model.compile("sgd", "mse", run_eagerly=eager)
        model.fit(IMAGES, TARGETS, batch_size=4, verbose=0)
    opscope.shutdown()
    ops = opscope.load(path).ops()
    return set(ops.filter(ops["step"].is_not_null())["layer"].drop_nulls())


def assert_in_the_model(found: set[str]) -> None:
    """Each layer stands in ``net`` and nowhere else."""
    assert {f"net/{part}" for part in PARTS} <= found, found
    assert not found & {*PARTS, "flat"}, found
