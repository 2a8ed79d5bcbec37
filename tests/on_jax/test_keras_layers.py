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
    found = layers_of(tmp_path / "net.opscope", made, eager=eager, backend="xplane")
    assert_in_the_model(found)
