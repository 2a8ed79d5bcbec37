"""Adapters: found, checked before they touch anything, installed once, on import where need be."""

from __future__ import annotations

import importlib
import logging
import sys
import textwrap

import pytest

from opscope import adapters
from opscope.adapters.base import Options
from opscope.core.capture import session


@pytest.fixture
def framework(tmp_path, monkeypatch):
    """A framework ``abacus`` 2.0 and an adapter for it that keeps a diary."""
    (tmp_path / "abacus.py").write_text('__version__ = "2.0"\n')
    (tmp_path / "abacus_adapter.py").write_text(
        textwrap.dedent(
            """
            diary = []
            class Adapter:
                name = "abacus"
                module = "abacus"
                requires = ">=2"
                def install(self, emitter, options):
                    diary.append(("install", emitter.domain, options))
                def listen(self):
                    diary.append("listen")
                def uninstall(self):
                    diary.append("uninstall")
            """
        )
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(adapters, "BUILT_IN", {"abacus": "abacus_adapter:Adapter"})
    monkeypatch.setattr(adapters.importlib.metadata, "entry_points", lambda group: ())
    # wrapt fires once for a name in a process; here a name is imported anew in each test
    monkeypatch.setattr(adapters, "_hooked", set())
    importlib.import_module("wrapt.importer")._post_import_hooks.pop("abacus", None)
    adapter = importlib.import_module("abacus_adapter")
    yield adapter
    adapters.uninstall()
    for name in ("abacus", "abacus_adapter"):
        sys.modules.pop(name, None)


OPTIONS = Options(shapes=False)
INSTALLED = ("install", "opscope.abacus", OPTIONS)


def test_imported_already(framework):
    importlib.import_module("abacus")
    for names in (None, ["abacus"], None):
        adapters.install(names, OPTIONS)
    assert framework.diary == [INSTALLED]
    assert adapters.installed() == ("abacus",)
    adapters.uninstall()
    adapters.uninstall()
    assert framework.diary == [INSTALLED, "uninstall"]


def test_imported_later(framework):
    adapters.install(None, OPTIONS)
    adapters.install(None, OPTIONS)
    assert framework.diary == []
    importlib.import_module("abacus")
    assert framework.diary == [INSTALLED]


def test_taken_back_before_it_is_imported(framework):
    adapters.install(None, OPTIONS)
    adapters.uninstall()
    importlib.import_module("abacus")
    assert framework.diary == []


def test_activity_is_passed_on(framework, tmp_path):
    from opscope.backends.recorder import RecorderCapture

    importlib.import_module("abacus")
    adapters.install(None, OPTIONS)
    session.start(RecorderCapture(tmp_path / "run"))
    session.stop()
    assert framework.diary == [INSTALLED, "listen", "listen"]
    adapters.uninstall()
    session.start(RecorderCapture(tmp_path / "again"))
    session.stop()
    assert framework.diary[-1] == "uninstall"


@pytest.mark.parametrize("how", ["version", "fault", "absent"])
def test_automatic_is_silent_and_requested_raises(framework, monkeypatch, caplog, how):
    importlib.import_module("abacus")
    if how == "version":
        monkeypatch.setattr(framework.Adapter, "requires", ">=3,<4")
    elif how == "fault":
        monkeypatch.setattr(framework.Adapter, "install", lambda *_: 1 / 0)
    else:
        monkeypatch.setattr(adapters, "BUILT_IN", {"abacus": "no_such_module:Adapter"})
    with caplog.at_level(logging.WARNING, "opscope"):
        adapters.install(None, OPTIONS)
    assert "abacus is not observed" in caplog.text
    assert adapters.installed() == ()
    with pytest.raises(adapters.AdapterError, match="abacus"):
        adapters.install(["abacus"], OPTIONS)
    assert framework.diary == []


def test_a_fault_does_not_fail_the_import(framework, monkeypatch, caplog):
    adapters.install(None, OPTIONS)
    monkeypatch.setattr(framework.Adapter, "install", lambda *_: 1 / 0)
    assert importlib.import_module("abacus").__version__ == "2.0"
    assert "abacus is not observed" in caplog.text


def test_entry_points_add_frameworks(framework, monkeypatch):
    point = importlib.metadata.EntryPoint("other", "abacus_adapter:Adapter", adapters.GROUP)
    monkeypatch.setattr(adapters.importlib.metadata, "entry_points", lambda group: (point,))
    assert adapters.available() == {
        "abacus": "abacus_adapter:Adapter",
        "other": "abacus_adapter:Adapter",
    }


def test_torch_is_built_in():
    assert adapters.available()["torch"] == "opscope.adapters.torch:TorchAdapter"
