"""``opscope diff`` of live trainings of Keras on JAX and of Flax; the cause is planted."""

from __future__ import annotations

import pytest

from tests.differing import ONE_NET, difference, matched_layers, recorded

pytest.importorskip("jax")
pytest.importorskip("keras")
pytest.importorskip("flax")
pytest.importorskip("optax")

#: How long a planted cause takes of each step: far longer than all else in it.
SECONDS = 0.3


def test_of_keras_and_flax_the_layers_match_and_the_time_outside_of_ops_is_named(tmp_path):
    keras = recorded(tmp_path, "keras", ONE_NET, "keras", KERAS_BACKEND="jax")
    flax = recorded(tmp_path, "flax", ONE_NET, "flax", SECONDS)
    found = difference(keras, flax)
    assert "Most of it: other" in found["headline"]
    assert found["parts"][0]["verdict"] == "slower"
    assert found["parts"][0]["b"] > SECONDS * 0.9e9
    # the other run has time outside of ops too, the more of it the busier the machine
    assert found["parts"][0]["change"] > SECONDS * 0.3e9
    layers = matched_layers(found, ("dot", "conv"))
    assert {("net/fc1", "Net/fc1"), ("net/fc2", "Net/fc2")} <= layers
    for one, other in layers:
        assert one.split("/")[-1] == other.split("/")[-1], "no layer is another one"
    loader = next(row for row in found["parts"] if row["part"] == "data loader")
    assert loader["b"] is None, "a program that slices arrays has no loader"
    assert "not known in B" in loader["reason"]
