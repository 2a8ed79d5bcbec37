"""Adapters: found, checked before they touch anything, installed once, on import where need be."""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import sys
import textwrap
from pathlib import Path

import pytest

from opscope import adapters
from opscope.adapters import known
from opscope.adapters.base import Options
from opscope.adapters.shared.ready import sources
from opscope.backends.recorder import RecorderCapture
from opscope.core.capture import session


@pytest.fixture
def framework(tmp_path, monkeypatch):
    """A framework ``abacus`` 2.0 and an adapter for it that keeps a diary."""
    adapters.uninstall()  # what an earlier test of this process has left installed
    (tmp_path / "abacus.py").write_text('__version__ = "2.0"\n')
    (tmp_path / "abacus_adapter.py").write_text(
        textwrap.dedent(
            """
            from opscope.adapters.base import Adapter as Base
            diary = []
            class Adapter(Base):
                name = "abacus"
                title = "Abacus"
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
    monkeypatch.setattr(adapters, "available", lambda: {"abacus": "abacus_adapter:Adapter"})
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
        monkeypatch.setattr(adapters, "available", lambda: {"abacus": "no_such_module:Adapter"})
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


def test_an_adapter_is_loaded_only_once_its_framework_is_imported(framework):
    sys.modules.pop("abacus_adapter")
    adapters.install(None, OPTIONS)
    assert "abacus_adapter" not in sys.modules
    importlib.import_module("abacus")
    assert "abacus_adapter" in sys.modules


def test_an_adapter_of_a_part_of_a_framework_waits_for_that_part(framework, monkeypatch, tmp_path):
    (tmp_path / "abacus.py").unlink()
    (tmp_path / "abacus").mkdir()
    (tmp_path / "abacus" / "__init__.py").write_text('__version__ = "2.0"\n')
    (tmp_path / "abacus" / "beads.py").write_text("")
    importlib.invalidate_caches()
    importlib.import_module("wrapt.importer")._post_import_hooks.pop("abacus.beads", None)
    monkeypatch.setattr(framework.Adapter, "module", "abacus.beads")
    adapters.install(None, OPTIONS)
    importlib.import_module("abacus")
    assert framework.diary == []
    importlib.import_module("abacus.beads")
    assert framework.diary == [INSTALLED]
    sys.modules.pop("abacus.beads")


@pytest.mark.parametrize("method", ["listen", "uninstall"])
def test_a_fault_of_an_adapter_reaches_neither_the_program_nor_other_adapters(
    framework, monkeypatch, tmp_path, caplog, method
):
    """A capture begins, and ``shutdown`` ends, as if the adapter were not there."""
    diary = []

    class Other(framework.Adapter):
        name = "other"

        def listen(self):
            diary.append("listen")

        def uninstall(self):
            diary.append("uninstall")

    framework.Other = Other
    names = {"other": "abacus_adapter:Other", "abacus": "abacus_adapter:Adapter"}
    monkeypatch.setattr(adapters, "available", lambda: names)
    monkeypatch.setitem(sys.modules, "other", importlib.import_module("abacus"))
    monkeypatch.setattr(framework.Adapter, method, lambda _: 1 / 0)
    with caplog.at_level(logging.ERROR, "opscope"):
        adapters.install(None, OPTIONS)
        session.start(RecorderCapture(tmp_path / "run"))
        session.stop()
        adapters.uninstall()
    assert diary == ["listen", "listen", "uninstall"]
    assert "ZeroDivisionError" in caplog.text
    assert adapters.installed() == ()


def test_entry_points_add_frameworks(monkeypatch):
    points = tuple(importlib.metadata.entry_points(group=known.GROUP))
    added = importlib.metadata.EntryPoint("other", "abacus_adapter:Adapter", known.GROUP)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: (*points, added))
    found = adapters.available()
    assert found.pop("other") == "abacus_adapter:Adapter"
    assert found.keys() == _folders()


def test_every_folder_of_an_adapter_has_its_entry_point():
    assert adapters.available().keys() == _folders()


def test_a_source_tree_that_is_not_installed_has_the_same_adapters(monkeypatch):
    project = Path(adapters.__file__).parents[2] / "pyproject.toml"
    if not project.is_file():
        pytest.skip("an installed package has no pyproject.toml beside it")
    installed = adapters.available()
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: ())
    assert adapters.available() == installed


def _folders():
    """The framework of each adapter of opscope's own."""
    rooms = Path(adapters.__file__).parent.glob("*/__init__.py")
    return {room.parent.name for room in rooms} - {"shared", "template"}


def test_the_native_sources_of_an_adapter_are_those_that_stand_in_its_folder():
    """What says that libraries are built already goes by them."""
    assert {path.name for path in sources("torch")} >= {"observer.cpp", "state.h", "memory.cpp"}
    assert {path.name for path in sources("tensorflow")} >= {"annotations.c", "inputs.cc"}
    assert sources("flax") == sources("no such framework") == []
