"""The list of tests of which CI runs a part: it names tests that exist, and what CI still has of each."""

from __future__ import annotations

import ast
from itertools import chain
from pathlib import Path

import pytest

from tests.full_run import COLLECTED, Collected, gone, left_out, parts

ROOT = Path(__file__).resolve().parents[1]


def test_of_a_test_with_cases_ci_has_every_nth_or_all_but_some():
    nodes = [f"a.py::cases[{n}]" for n in range(7)] + [
        "a.py::single",
        "a.py::some[x]",
        "a.py::some[y]",
    ]
    entries = [
        {"test": ["a.py::cases"], "every": 3},
        {"test": ["a.py::single", "a.py::gone"]},
        {"test": ["a.py::some"], "cases": ["y", "z"]},
    ]
    assert set(nodes) - left_out(nodes, entries) == {
        "a.py::cases[0]",
        "a.py::cases[3]",
        "a.py::cases[6]",
        "a.py::some[x]",
    }


@pytest.mark.parametrize("entry", parts(), ids=lambda entry: entry["test"][0])
def test_each_entry_names_tests_and_what_ci_still_has(entry):
    assert set(entry) <= {"test", "every", "cases", "still"}
    assert len(entry["still"].split()) >= 5
    for test in entry["test"]:
        path, _, name = test.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        functions = (
            node
            for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        )
        assert name in {function.name for function in functions}, f"{test} is gone"
    assert entry.get("every", 2) > 1


def test_no_test_is_listed_twice():
    tests = list(chain.from_iterable(entry["test"] for entry in parts()))
    assert len(tests) == len(set(tests))


def test_a_listed_case_that_is_gone_is_known_where_others_of_its_test_are_there():
    entries = [
        {"test": ["a.py::some"], "cases": ["y", "z"]},
        {"test": ["a.py::elsewhere"], "cases": ["y"]},
    ]
    assert gone(["a.py::some[x]", "a.py::some[y]"], entries) == {"a.py::some[z]"}


def test_at_most_a_twentieth_of_the_tests_is_left_out_and_no_listed_case_is_gone(request):
    """Of all that an environment collects; of a file or two the share says nothing."""
    collected = request.config.stash.get(COLLECTED, Collected(0, 0, set()))
    if collected.tests < 2_000:
        pytest.skip("a full run, or a few files alone")
    assert collected.left_out <= collected.tests / 20
    assert not collected.gone
