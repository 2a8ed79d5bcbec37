"""Layers of Keras models on TensorFlow, in graphs and eagerly."""

from __future__ import annotations

import pytest

pytest.importorskip("tensorflow")

from tests.keras_layers import MODELS, assert_in_the_model, layers_of


@pytest.mark.parametrize(("made", "eager"), MODELS)
def test_a_layer_stands_in_its_model_wherever_it_was_built(tmp_path, made, eager):
    found = layers_of(tmp_path / "net.opscope", made, eager=eager, backend="recorder")
    # the activation's work is fused into the convolution's, but for its gradient
    assert_in_the_model(found)
