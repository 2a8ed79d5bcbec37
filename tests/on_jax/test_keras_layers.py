"""Layers of Keras models on JAX, compiled and eagerly."""

from __future__ import annotations

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import pytest

pytest.importorskip("jax")
keras = pytest.importorskip("keras")
if keras.backend.backend() != "jax":
    pytest.skip("Keras runs on another backend", allow_module_level=True)

from tests.keras_layers import MODELS, assert_in_the_model, layers_of  # noqa: E402

pytestmark = pytest.mark.usefixtures("unobserved")


@pytest.mark.parametrize(("made", "eager"), MODELS)
def test_a_layer_stands_in_its_model_wherever_it_was_built(tmp_path, made, eager):
    # XLA runs an eager operation on a thread of its own. On a busy machine some run after their layer has ended,
    # and then have no layer, so each layer has twenty tries.
    epochs = 10 if eager else 1
    found = layers_of(tmp_path / "net.opscope", made, eager=eager, backend="xplane", epochs=epochs)
    assert_in_the_model(found)
