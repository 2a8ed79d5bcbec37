"""``opscope doctor`` on machines where something is odd: what it is there for."""

from __future__ import annotations

import sys

import pytest

import opscope.adapters
from opscope.cli import doctor


@pytest.fixture
def framework(tmp_path, monkeypatch):
    """``framework(code)``: ``odd`` is installed, by a distribution of another name; its adapter is that."""
    information = tmp_path / "odd_cpu-3.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-cpu\nVersion: 3.1\n")
    (information / "top_level.txt").write_text("odd\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(opscope.adapters, "available", lambda: {"odd": "odd_adapter:Adapter"})
    doctor._distributions.cache_clear()

    def make(code):
        (tmp_path / "odd_adapter.py").write_text(code)
        (check,) = (one for one in doctor.checks() if one.what == "odd")
        return check

    yield make
    sys.modules.pop("odd_adapter", None)
    doctor._distributions.cache_clear()


def test_a_framework_whose_distribution_has_another_name(framework):
    check = framework("class Adapter:\n    requires = '>=3'\n")
    assert (check.works, check.found) == (True, "3.1")


def test_a_framework_that_cannot_be_imported_is_told_with_the_rest(framework):
    check = framework("raise ImportError('libodd.so.1:\\n no such file')\n")
    assert (check.works, check.found) == (False, "3.1")
    assert check.advice == "it cannot be imported: libodd.so.1: no such file"
