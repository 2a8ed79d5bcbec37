"""``opscope baseline`` and ``opscope diff --against`` on real traces."""

from __future__ import annotations

import json

import pytest

from tests.command import opscope

BEFORE = "kineto/resnet50_nw0_step_span1.pt.trace.json.gz"
AFTER = "kineto/resnet50_nw4_step_span1.pt.trace.json.gz"


@pytest.fixture(scope="module")
def folder(shared, tmp_path_factory):
    folder = tmp_path_factory.mktemp("baselines")
    for name, trace in (("before", BEFORE), ("after", AFTER)):
        done = opscope(
            "baseline", "save", name, shared / trace, "--baselines", folder, "--commit", name
        )
        assert done.returncode == 0, done.stderr
        assert "wrote" in done.stderr
    return folder


def test_a_difference_from_a_baseline_is_that_from_its_trace(shared, folder):
    of_files = opscope("diff", shared / BEFORE, shared / AFTER, "--json")
    of_baseline = opscope(
        "diff", shared / AFTER, "--against", "before", "--baselines", folder, "--json"
    )
    assert of_baseline.returncode == 0, of_baseline.stderr
    one, other = json.loads(of_files.stdout), json.loads(of_baseline.stdout)
    assert (one.pop("a"), other.pop("a")) == ("resnet50_nw0_step_span1.pt.trace.json.gz", "before")
    for table in ("step", "parts", "causes", "ops", "op_sums", "kernels", "headline"):
        assert one[table] == other[table], table


def test_limits_are_those_of_diff(shared, folder):
    asked = (
        "baseline",
        "compare",
        "after",
        "before",
        "--baselines",
        folder,
        "--fail-on",
        "step>5%",
    )
    slower = opscope(*asked)
    assert slower.returncode == 1
    assert "exceeded: step>5%" in slower.stderr
    of_file = opscope("baseline", "compare", "after", shared / BEFORE, *asked[4:])
    assert of_file.returncode == 1


def test_a_run_is_saved_once(shared, folder):
    again = opscope("baseline", "save", "before", shared / BEFORE, "--baselines", folder)
    assert "there already" in again.stderr
    listed = json.loads(opscope("baseline", "list", "--json", "--baselines", folder).stdout)
    rows = {row["baseline"]: row for row in listed["baselines"]}
    assert {name: (row["runs"], row["steps"], row["commit"]) for name, row in rows.items()} == {
        "before": (1, 6, "before"),
        "after": (1, 5, "after"),
    }


def test_the_trend_says_since_when(folder, tmp_path):
    html = tmp_path / "trend.html"
    done = opscope(
        "baseline", "trend", "before", "after", "--baselines", folder, "--html", html, "-w", "0"
    )
    assert "after: a step took 175 ms before and takes 131 ms (-24.9%)" in done.stdout
    assert "data loader" in html.read_text("utf-8")


def test_what_is_not_there_is_one_error(folder, tmp_path):
    done = opscope("diff", "x", "--against", "main", "--baselines", folder)
    assert done.returncode == 2
    assert "no baseline named 'main'" in done.stderr
    done = opscope("baseline", "list", "--baselines", tmp_path / "none")
    assert done.returncode == 2
    assert "none" in done.stderr
    assert opscope("diff", "x").returncode == 2
    assert opscope("diff", "x", "y", "--against", "main").returncode == 2


def test_a_name_is_a_file_s(shared, folder):
    done = opscope("baseline", "save", "../x", shared / BEFORE, "--baselines", folder)
    assert done.returncode == 2
    assert "cannot name a baseline" in done.stderr
