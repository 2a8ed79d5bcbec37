"""Fixtures that record programs with ONNX Runtime observed, and what the graphs themselves say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import opscope
from opscope.backends import begin
from opscope.core.capture import session as capture_session


@pytest.fixture(autouse=True)
def each_test(unobserved):
    """Step numbers begin at 0 in each test; opscope is shut down after it."""


@dataclass
class Recorded:
    """A recording that is kept, and its profile."""

    folder: Path

    @property
    def profile(self):
        return opscope.load(self.folder)

    def events(self, number=1):
        """The events that ONNX Runtime wrote for a session."""
        [path] = self.folder.glob(f"part-*/onnxruntime-{number}/profile.json")
        return json.loads(path.read_text())

    @property
    def ops(self):
        return self.profile.ops()

    def notes(self):
        return self.profile.notes()["what"].to_list()


@pytest.fixture
def record(tmp_path):
    """``record(function)``: call it while a recording runs, and return the recording."""

    def call(function, name="recording"):
        folder = tmp_path / name
        begin(folder, "recorder")
        try:
            function()
        finally:
            capture_session.stop()
        return Recorded(folder)

    return call


@pytest.fixture
def made(tmp_path):
    """``made(model, level)``: a session on the CPU of a model of ``models.py``."""
    import onnxruntime as ort

    def session(model, level="ORT_ENABLE_ALL", options=None, path=None):
        options = options or ort.SessionOptions()
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        options.intra_op_num_threads = 1
        return ort.InferenceSession(
            path or model.proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    return session


def assert_same(ours, theirs):
    """Assert that two lists of arrays are equal bit by bit."""
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other, equal_nan=True)
        assert one.tobytes() == other.tobytes()


def files_below(*folders):
    """All files below the folders, of any program of ours."""
    return {str(path) for folder in folders for path in Path(folder).rglob("*") if path.is_file()}
