"""The table of all benchmarks: its rows, the figures of the last release, and what a missed row's time is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import opscope

from .script import module_at

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return module_at("benchmarks/all.py")


def test_the_figures_of_the_last_release_are_those_of_the_rows(benchmark, tmp_path):
    names = [
        name for group in benchmark.groups(benchmark.Files(tmp_path, 1000)) for name in group.goals
    ]
    kept = json.loads((ROOT / "benchmarks" / "figures.json").read_text(encoding="utf-8"))
    assert set(kept["figures"]) <= set(names)
    assert len(names) == len(set(names))


def test_a_row_shows_the_median_its_spread_and_whether_the_goal_is_missed(benchmark):
    row = benchmark.Row("report", 2.0, [3.0, 1.0, 2.5])
    assert row.line(5.0).split() == ["report", "2.5", "1–3", "5", "2", "missed"]
    assert benchmark.Row("report", 2.0, [1.0]).line(None).split() == [
        "report",
        "1",
        "1–1",
        "–",
        "2",
    ]


def test_the_rest_of_a_missed_row_s_time_is_named(benchmark, tmp_path):
    trace = benchmark.Files(tmp_path, 1000).tiny()
    assert opscope.load(trace).summary()["kernels"][0] == 1
    parts = benchmark.rest(["report", trace])
    assert "imports" in parts
    assert parts.count("%") == 7


def test_figures_are_kept_for_the_next_release(benchmark, tmp_path, monkeypatch):
    kept = tmp_path / "figures.json"
    kept.write_text('{"release": "1", "figures": {"a": 1.0, "b": 2.0}}')
    monkeypatch.setattr(benchmark, "FIGURES", kept)
    benchmark.record("2", [benchmark.Row("b", 1.0, [4.0, 3.0, 5.0])])
    assert json.loads(kept.read_text()) == {"release": "2", "figures": {"a": 1.0, "b": 4.0}}
