"""Light mode of Keras on PyTorch: steps, phases, waits for batches, memory, slow spells."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.keras_light import PROGRAM
from tests.light_runs import STEPS, assert_phases, assert_planted, watched

pytest.importorskip("torch")
if find_spec("keras") is None:
    pytest.skip("Keras is not installed", allow_module_level=True)

TORCH = {"KERAS_BACKEND": "torch"}


def test_each_step_has_its_phases_and_the_training_is_the_same(tmp_path):
    profile = watched(tmp_path, PROGRAM, planted=False, **TORCH)
    assert_phases(profile, 60, {"input", "forward", "backward", "optimizer"})


def test_what_is_wrong_with_a_training_is_found(tmp_path):
    assert_planted(watched(tmp_path, PROGRAM, planted=True, steps=STEPS, **TORCH))
