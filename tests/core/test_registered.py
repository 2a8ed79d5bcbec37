"""Entry points: found once by a run, and by its children only where these may find others."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core import registered

GROUP = "opscope.test"


def package(site: Path, name: str, *lines: str) -> None:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join((f"[{GROUP}]", *lines, "")))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages in which ``abacus`` is registered."""
    package(tmp_path / "site", "abacus", "abacus = abacus:ABACUS")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delenv(registered.VARIABLE, raising=False)
    return tmp_path / "site"


def hand_down(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    found = {GROUP: {"handed": "package:HANDED"}}
    monkeypatch.setenv(registered.VARIABLE, registered.handed_down(found, environ))


def test_packages_are_found_by_their_metadata(site: Path) -> None:
    assert registered.entries(GROUP) == {"abacus": "abacus:ABACUS"}


def test_a_child_takes_what_the_run_found(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/one")
    hand_down(monkeypatch, {"PYTHONPATH": "/one"})
    assert registered.entries(GROUP) == {"handed": "package:HANDED"}
    assert registered.entries("opscope.another") == {}  # a group that was not handed down


def test_a_child_with_another_path_looks_itself(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/another")
    hand_down(monkeypatch, {"PYTHONPATH": "/one"})
    assert registered.entries(GROUP) == {"abacus": "abacus:ABACUS"}


@pytest.mark.parametrize("what", ["prefix", "version"])
def test_another_python_looks_itself(
    site: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    hand_down(monkeypatch, {"PYTHONPATH": ""})
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert registered.entries(GROUP) == {"handed": "package:HANDED"}
    monkeypatch.setattr(sys, what, "another")
    assert registered.entries(GROUP) == {"abacus": "abacus:ABACUS"}


@given(st.text() | st.recursive(st.none() | st.text(), lambda a: st.lists(a) | st.dictionaries(st.text(), a)).map(json.dumps))  # fmt: skip
def test_a_text_of_another_kind_hands_down_nothing(text: str) -> None:
    assert registered._handed(text, ["a", "b", "c"]) == {}


def test_no_package_takes_a_name_of_opscope_s_own(site: Path) -> None:
    package(site, "aaa", "recorder = aaa:HERS")
    package(site, "opscope", "recorder = opscope.mine:OWN")
    package(site, "zzz", "recorder = zzz:HIS")
    assert registered.entries(GROUP)["recorder"] == "opscope.mine:OWN"
