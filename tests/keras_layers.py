"""Models and checks for tests of Keras layers on any backend: each layer's path begins with its model."""

from __future__ import annotations

import numpy as np
import pytest

import opscope

IMAGES, TARGETS = np.ones((8, 6, 6, 3), "float32"), np.ones((8, 2), "float32")
#: Layers that run ops on every backend; ``act`` has no weights.
PARTS = ("conv", "act", "fc")


def functional():
    """Return a model with layers that are built before the model."""
    from keras import Input, Model, layers

    images = Input((6, 6, 3))
    h = layers.Conv2D(4, 3, name="conv")(images)
    h = layers.Flatten(name="flat")(layers.ReLU(name="act")(h))
    return Model(images, layers.Dense(2, name="fc")(h), name="net")


def sequential():
    """Return a model with layers that are built at its first call."""
    from keras import Sequential, layers

    parts = [layers.Conv2D(4, 3, name="conv"), layers.ReLU(name="act"), layers.Flatten(name="flat")]
    return Sequential([*parts, layers.Dense(2, name="fc")], name="net")


#: For ``pytest.mark.parametrize("made, eager", …)``.
MODELS = [
    pytest.param(made, eager, id=f"{made.__name__}-{'eager' if eager else 'compiled'}")
    for made in (functional, sequential)
    for eager in (False, True)
]


def layers_of(path, made, *, eager: bool, backend: str, epochs: int = 1) -> set[str]:
    """Return the layers of the ops of a training; the model is made during the recording."""
    import keras

    keras.backend.clear_session()
    with opscope.capture(path, backend=backend):
        model = made()
        model.compile("sgd", "mse", run_eagerly=eager)
        model.fit(IMAGES, TARGETS, batch_size=4, epochs=epochs, verbose=0)
    opscope.shutdown()
    ops = opscope.load(path).ops()
    return set(ops.filter(ops["step"].is_not_null())["layer"].drop_nulls())


def assert_in_the_model(found: set[str]) -> None:
    """Assert that each layer's path is in ``net`` and nowhere else."""
    assert {f"net/{part}" for part in PARTS} <= found, found
    assert not found & {*PARTS, "flat"}, found
