"""Which tests only the full run has: ``tests/full_run.toml`` says of which tests CI runs a part, and which part."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

LIST = Path(__file__).with_suffix(".toml")


class Collected(NamedTuple):
    """How many tests pytest collected, how many of them CI leaves out, and the listed cases that are gone."""

    tests: int
    left_out: int
    gone: set[str]


#: Where conftest.py keeps what it collected.
COLLECTED = pytest.StashKey[Collected]()


def parts() -> list[dict[str, Any]]:
    """Return the entries of the list."""
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    entries: list[dict[str, Any]] = toml.loads(LIST.read_text(encoding="utf-8"))["part"]
    return entries


def left_out(nodes: Iterable[str], entries: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the ids, of these ids of tests in the order of their collection, that CI leaves out."""
    cases: dict[str, list[str]] = {}
    for node in nodes:
        cases.setdefault(node.partition("[")[0], []).append(node)
    out: set[str] = set()
    for entry in entries:
        for test in entry["test"]:
            of_test = cases.get(test, [])
            if "cases" in entry:
                names = {f"{test}[{case}]" for case in entry["cases"]}
                out |= names.intersection(of_test)
            else:
                every = entry.get("every")
                out |= set(of_test) - set(of_test[::every] if every else ())
    return out


def gone(nodes: Iterable[str], entries: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the listed cases that are none of these ids, of tests of which other cases are."""
    ids = set(nodes)
    missing: set[str] = set()
    for entry in entries:
        for test in entry["test"]:
            names = {f"{test}[{case}]" for case in entry.get("cases", ())}
            missing |= names - ids if names & ids else set()
    return missing
