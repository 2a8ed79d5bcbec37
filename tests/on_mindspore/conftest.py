"""Fixtures that record programs with MindSpore observed and return their profiles."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("GLOG_v", "3")  # MindSpore's log: errors only

import opscope


@pytest.fixture(autouse=True)
def each_test(unobserved):
    """Step numbers begin at 0 in each test; opscope is shut down after it; PyNative mode unless asked."""
    import mindspore as ms

    ms.set_context(mode=ms.PYNATIVE_MODE)
    yield
    ms.set_context(mode=ms.PYNATIVE_MODE)


@pytest.fixture
def recorded(tmp_path):
    """``recorded(function)``: the profile of a call of the function."""

    def record(function, name="run.opscope"):
        with opscope.capture(tmp_path / name, backend="recorder"):
            function()
        opscope.shutdown()
        return opscope.load(tmp_path / name)

    return record
