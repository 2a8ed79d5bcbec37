"""The program's imports are timed, and the program sees nothing of it."""

from __future__ import annotations

import importlib
import sys
import traceback

import pytest

from opscope.core.capture.imports import imports, time_imports


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A folder of modules that can be imported; they are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("made_"):
            del sys.modules[name]


@pytest.fixture
def timed(modules):
    undo = time_imports()
    yield modules
    undo()


def names() -> list[str]:
    return [name for name, _, _ in imports()]


def test_an_import_inside_another_is_in_its_time(timed):
    (timed / "made_outer.py").write_text("import made_inner")
    (timed / "made_inner.py").write_text("")
    importlib.import_module("made_outer")
    import made_inner  # noqa: F401  it is loaded already

    assert names() == ["made_outer"]
    ((_, begin, end),) = imports()
    assert begin < end
    assert imports(since=1) == []


def test_the_next_import_is_timed_too_after_one_that_fails(timed):
    (timed / "made_broken.py").write_text("1 / 0")
    (timed / "made_good.py").write_text("")
    with pytest.raises(ZeroDivisionError):
        importlib.import_module("made_broken")
    importlib.import_module("made_good")
    assert names() == ["made_broken", "made_good"]


@pytest.mark.parametrize("name", ["made_broken", "made_absent"])
def test_the_traceback_of_a_failed_import_is_as_without_us(modules, name):
    (modules / "made_broken.py").write_text("import made_absent")

    def frames() -> list[str]:
        try:
            exec(f"import {name}", {})
        except ImportError:
            return traceback.format_exc().splitlines()
        raise AssertionError("it was imported")

    plain = frames()
    undo = time_imports()
    try:
        assert frames() == plain
    finally:
        undo()


def test_what_was_there_before_is_back_afterwards():
    machinery = sys.modules["_frozen_importlib"]
    before = machinery._find_and_load
    time_imports()()
    assert machinery._find_and_load is before
