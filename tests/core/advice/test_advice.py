"""Detectors: each fires where it must, stays silent where it must, and says where it cannot tell."""

from __future__ import annotations

import ast
import logging
import textwrap
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from opscope.core.advice import ask
from opscope.core.advice import detectors as folder
from opscope.core.advice.finding import CannotTell, Detector, Edit, Finding
from opscope.core.question import parameters
from opscope.profile import Profile
from tests.core.advice.test_pageable_copies import copy, profile
from tests.script import ROOT


@pytest.fixture(autouse=True)
def afresh():
    yield
    ask.detectors.cache_clear()


def test_the_recipe_of_the_contributing_page_makes_a_detector(tmp_path, monkeypatch):
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    recipe = page[page.index("## Add a detector") :]
    source = textwrap.dedent(recipe.partition("```text\n")[2].partition("```")[0])
    (tmp_path / "slow_copies.py").write_text(source, encoding="utf-8")
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    ask.detectors.cache_clear()
    assert {"pageable_copies", "slow_copies"} <= set(ask.detectors())
    answers = {
        "nothing found": [copy(0, 1000, 64, kind="DtoD")],
        "found": [copy(0, 2_000_000, 64, kind="DtoD")],
        "cannot tell": [copy(0, 2_000_000, 64)],
    }
    for outcome, copies in answers.items():
        found = profile(copies).advice().filter(pl.col("detector") == "slow_copies")
        assert found["outcome"].to_list() == [outcome]
    found = profile(answers["found"]).advice(["slow_copies"])
    assert found["saving_most"].to_list() == [2_000_000]


def test_a_file_that_is_no_detector_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "nothing.py").write_text('"""Nothing."""\n')
    monkeypatch.setattr(folder, "__path__", [str(tmp_path)])
    ask.detectors.cache_clear()
    with pytest.raises(TypeError, match="nothing defines no DETECTOR"):
        ask.detectors()["nothing"]


def other(found):
    """A detector of another package, which is ``found`` at its entry point."""

    class Point:
        name = "theirs"

        def load(self):
            return found

    return lambda group: [Point()] if group == ask.GROUP else []


def test_a_detector_of_another_package_is_asked_and_its_fault_costs_only_itself(
    monkeypatch, caplog
):
    def fails(answers):
        raise ValueError("it is broken")

    made = Detector(name="theirs", question="?", find=fails)
    monkeypatch.setattr(ask, "entry_points", other(made))
    ask.detectors.cache_clear()
    found = profile([copy(0, 1000, 1 << 20)]).advice(["pageable_copies", "theirs"])
    assert found["outcome"].to_list() == ["found", "cannot tell"]
    assert "it is broken" in found["reason"][1]
    assert "theirs failed" in caplog.text


def test_what_is_no_detector_is_left_out_and_logged(monkeypatch, caplog):
    monkeypatch.setattr(ask, "entry_points", other("no detector"))
    ask.detectors.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert "theirs" not in ask.detectors()
    assert "theirs is left out" in caplog.text


def test_findings_come_first_and_those_that_may_save_most_before_the_others(monkeypatch):
    def saving_of(most):
        return Finding(
            what=f"up to {most}", evidence="", recommendation="", time=5, saving_least=0,
            saving_most=most, reasoning="", confidence="low",
        )  # fmt: skip

    def estimated(saving):
        return replace(saving_of(100), what=f"about {saving}", saving=saving)

    answers = {
        "a": [], "b": CannotTell("why"), "c": [saving_of(3), saving_of(9), estimated(0)],
        "d": [saving_of(None), estimated(1)], "e": [estimated(2)],
    }  # fmt: skip
    made = {
        name: Detector(name=name, question="?", find=lambda _, found=found: found)
        for name, found in answers.items()
    }
    monkeypatch.setattr(ask, "detectors", lambda: made)
    found = ask.advice(profile([]))
    assert found.select("detector", "finding").rows() == [
        ("e", "about 2"), ("d", "about 1"), ("c", "up to 9"), ("d", "up to None"), ("c", "up to 3"),
        ("c", "about 0"), ("b", None), ("a", None),
    ]  # fmt: skip


@pytest.mark.parametrize("cpu_only", [True, False])
def test_without_another_device_a_share_is_of_the_ops_time(trace_of, monkeypatch, cpu_only):
    finding = Finding(
        what="50 % of the device's time", evidence="", recommendation="", time=5, saving_least=0,
        saving_most=5, reasoning="", confidence="low",
    )  # fmt: skip
    detector = Detector(name="a", question="?", find=lambda _: [finding])
    monkeypatch.setattr(ask, "detectors", lambda: {"a": detector})
    ranges = [{"process": 0, "thread": 1, "start": 0, "end": 9, "domain": "opscope.torch",
               "category": "forward", "kind": "pushpop", "text": "aten::relu(f32[4])"}]  # fmt: skip
    kernels = [{"process": 0, "device": 0, "start": 1, "end": 5, "name": "k"}]
    tables = {"ranges": ranges} | ({} if cpu_only else {"kernels": kernels})
    (text,) = ask.advice(Profile(trace_of(**tables)))["finding"]
    assert text.endswith("the ops' time" if cpu_only else "the device's time")


def test_what_replays_need_is_made_once_and_only_for_a_finding_with_an_edit(monkeypatch):
    made, told = [], {"a": None, "b": None, "c": None}

    def finding(edit):
        return Finding(
            what="", evidence="", recommendation="", time=5, saving_least=0, saving_most=5,
            reasoning="", confidence="low", edit=edit,
        )  # fmt: skip

    known = {
        name: Detector(name=name, question="?", find=lambda _, name=name: [finding(told[name])])
        for name in told
    }
    monkeypatch.setattr(ask, "detectors", lambda: known)
    ask.said(profile([]), lambda edits: None, prepare=lambda: made.append(1))
    assert not made
    told["a"] = told["c"] = Edit()
    ask.said(profile([]), lambda edits: None, prepare=lambda: made.append(1))
    assert made == [1]


def test_where_replays_cannot_be_prepared_each_says_so_itself(monkeypatch, caplog):
    def fails(*_):
        raise MemoryError("no timeline")

    one = Finding(
        what="slow", evidence="", recommendation="", time=5, saving_least=0, saving_most=5,
        reasoning="", confidence="low", edit=Edit(),
    )  # fmt: skip
    made = {"a": Detector(name="a", question="?", find=lambda _: [one])}
    monkeypatch.setattr(ask, "detectors", lambda: made)
    (found,) = ask.said(profile([]), fails, prepare=fails)
    assert found.outcome == ask.FOUND
    assert found.finding.saving is None
    assert "the edit of the detector a was not replayed" in caplog.text


def test_the_detectors_that_are_asked_first_and_last_are_there():
    assert {*ask._FIRST, *ask._LAST} <= set(ask.detectors())


@pytest.mark.parametrize(
    ("threshold", "value", "said"),
    [
        (parameters.count("copies at least"), 100, "from 100 on"),
        (parameters.duration("a copy's time at least"), 5_000, "from 5 µs on"),
        (parameters.share("a share of the window"), 0.05, "from 5 % on"),
    ],
)
def test_a_threshold_is_said_in_its_own_unit(threshold, value, said):
    def find(_answers, least=value):
        return []

    thresholds = {"least": threshold}
    detector = Detector(
        name="a", question="?", find=find, thresholds=thresholds, fires="from {least} on"
    )
    assert ask.threshold(detector) == said


def test_detectors_that_are_never_sure_have_no_estimate_or_are_of_low_confidence():
    """What the table says, by the source: the diagnosis does not load these detectors."""
    for name in folder.NEVER_SURE:
        tree = ast.parse(Path(folder.__path__[0], f"{name}.py").read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        findings = [call for call in calls if getattr(call.func, "id", "") == "Finding"]
        assert findings
        for finding in findings:
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in finding.keywords}
            assert given.get("saving_least") == "0"
            assert not {"stands_out", "doubts"} & set(given)
            estimated = given.get("saving", "0") != "0" or {"edit", "step_saving"} & set(given)
            assert given["confidence"] == "'low'" or not estimated


def test_the_tables_of_detectors_name_detectors():
    assert {*folder.EXPLAINS, *folder.NEVER_SURE, *folder.DOUBTING} <= set(ask.detectors())
