"""The names a user types: cheap to import, and each does what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import opscope
from opscope.backends.recorder import RecorderCapture
from opscope.core.capture import session
from opscope.core.rangetext import parse
from opscope.core.schema import TensorSpec
from opscope.readers.recording.reader import collect

ROOT = Path(__file__).resolve().parents[1]


def recorded(folder, run):
    """The ranges that ``run()`` left in a recording."""
    session.start(RecorderCapture(folder))
    try:
        run()
    finally:
        session.stop()
    return collect(folder)["ranges"].sort("start").to_dicts()


def test_importing_opscope_loads_no_framework_and_no_polars():
    code = (
        "import sys, opscope; opscope.init; opscope.__version__;"
        "print([name for name in ('torch', 'polars', 'numpy', 'nvtx', 'wrapt', 'packaging')"
        " if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there():
    for name in opscope.__all__:
        assert callable(getattr(opscope, name)), name
    assert set(opscope.__all__) <= set(dir(opscope))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        opscope.nonsense  # noqa: B018


def test_annotate_as_a_block_and_as_a_decorator(tmp_path):
    @opscope.annotate("inner")
    def inner():
        return 7

    def run():
        with opscope.annotate("outer"):
            assert inner() == 7

    outer, within = recorded(tmp_path / "run", run)
    assert (outer["domain"], outer["text"]) == ("opscope.user", "outer")
    assert within["text"] == "inner"
    assert outer["start"] <= within["start"] <= within["end"] <= outer["end"]


def test_steps_have_the_numbers_that_they_are_given(tmp_path, fresh_steps):
    def run():
        assert [opscope.step(), opscope.step(), opscope.step(9), opscope.step()] == [0, 1, 9, 10]

    ranges = recorded(tmp_path / "run", run)
    assert [one["text"] for one in ranges] == ["step 0", "step 1", "step 9", "step 10"]
    assert {one["category"] for one in ranges} == {"step"}


def test_a_range_is_named_by_anything_and_a_step_by_whole_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "_steps", session._Steps())
    monkeypatch.setattr(session, "steps_by_user", False)
    with pytest.raises(TypeError):
        opscope.step("second")
    assert not session.steps_by_user  # nothing recorded, and it is refused as it would be then

    def run():
        for name in (5, None, b"b", Path("folder")):
            with opscope.annotate(name):
                pass
        opscope.step(True)

    ranges = recorded(tmp_path / "run", run)
    assert [one["text"] for one in ranges] == ["5", "None", "b'b'", "folder", "step 1"]


class Layer:
    def apply(self, x, scale=1.0, mask=None):
        """A method."""
        return x * scale

    @classmethod
    def build(cls, x):
        return cls, x

    @staticmethod
    def plain(x):
        return x


class Derived(Layer):
    pass


def test_wrapped_functions_are_ops_with_their_tensors(tmp_path):
    before = {name: vars(Layer)[name] for name in ("apply", "build", "plain")}
    for name in before:
        opscope.wrap(Layer, name)
    opscope.wrap(Derived, "plain")
    x = np.ones((2, 3), np.float32)

    def run():
        Layer().apply(x, scale=2.0, mask=np.ones(3, bool))
        assert Layer.build(x)[0] is Layer
        assert Derived.build(x)[0] is Derived
        assert Layer.plain([x, x])[0] is x
        with pytest.raises(TypeError):
            Layer.plain()

    try:
        assert Layer.apply.__doc__ == "A method."
        ranges = recorded(tmp_path / "run", run)
    finally:
        opscope.shutdown()
    assert {name: vars(Layer)[name] for name in before} == before
    assert "plain" not in vars(Derived)
    calls = [parse(one["text"]) for one in ranges]
    assert [call.name for call in calls] == [
        "Layer.apply",
        "Layer.build",
        "Layer.build",
        "Layer.plain",
        "Layer.plain",
    ]
    spec = TensorSpec("f32", (2, 3))
    assert calls[0].inputs == (spec, TensorSpec("bool", (3,)))
    assert calls[0].params == (("scale", 2.0),)
    assert calls[3].inputs == ((spec, spec),)


def test_wrap_refuses_what_is_no_function():
    with pytest.raises(AttributeError):
        opscope.wrap(Layer, "missing")
    Layer.constant = 3
    try:
        with pytest.raises(TypeError, match="it is not callable"):
            opscope.wrap(Layer, "constant")
    finally:
        del Layer.constant


def test_capture_refuses_before_anything_runs(tmp_path):
    unknown = opscope.capture(tmp_path / "a.opscope", backend="magic")
    with pytest.raises(ValueError, match="no backend 'magic'"), unknown:
        raise AssertionError("must not be entered")
    taken = tmp_path / "b.opscope"
    taken.mkdir()
    with pytest.raises(FileExistsError), opscope.capture(taken):
        raise AssertionError("must not be entered")
    with pytest.raises(FileExistsError, match="no profile"), opscope.capture(taken, force=True):
        raise AssertionError("must not be entered")
    session.start(RecorderCapture(tmp_path / "other"))
    try:
        with (
            pytest.raises(session.SessionError, match="already running"),
            opscope.capture(tmp_path / "c.opscope", backend="recorder"),
        ):
            raise AssertionError("must not be entered")
    finally:
        session.stop()
        opscope.shutdown()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.opscope", "other"]
