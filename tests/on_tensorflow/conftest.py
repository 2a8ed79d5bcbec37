"""Fixtures that record programs with TensorFlow observed and return their profiles."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import opscope

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def each_test(unobserved):
    """Step numbers begin at 0 in each test; opscope is shut down after it."""


@pytest.fixture
def recorded(tmp_path):
    """``recorded(function)``: the profile of a call of the function."""

    def record(function, name="run.opscope"):
        with opscope.capture(tmp_path / name, backend="recorder"):
            function()
        opscope.shutdown()
        return opscope.load(tmp_path / name)

    return record


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """``example("keras_cnn.py")``: the profile of an example, run once."""
    made = {}

    def profile(name):
        if name not in made:
            path = tmp_path_factory.mktemp("example") / "run.opscope"
            if name.startswith("keras"):
                import keras

                keras.utils.clear_session()  # layers get the same names as in a new process
            with opscope.capture(path, backend="recorder"):
                runpy.run_path(str(EXAMPLES / name), run_name="__main__")
            opscope.shutdown()
            made[name] = opscope.load(path)
        return made[name]

    return profile
