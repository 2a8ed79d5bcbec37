"""Layers of Keras models on PyTorch."""

from __future__ import annotations

import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import pytest

pytest.importorskip("torch")
keras = pytest.importorskip("keras")
if keras.backend.backend() != "torch":
    pytest.skip("Keras runs on another backend", allow_module_level=True)

from tests.keras_layers import MODELS, assert_in_the_model, layers_of  # noqa: E402

pytestmark = pytest.mark.usefixtures("unobserved")


@pytest.mark.parametrize(("made", "eager"), MODELS)
def test_a_layer_stands_in_its_model_wherever_it_was_built(tmp_path, made, eager):
    found = layers_of(tmp_path / "net.opscope", made, eager=eager, backend="recorder")
    assert_in_the_model(found)
