"""Train the model of docs/frameworks.md again and compare the result with the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.script import module_at

doc = module_at("scripts/frameworks_doc.py")


def table() -> dict:
    """Return the values measured when the page was written."""
    return json.loads(doc.TABLE.read_text(encoding="utf-8"))


def equal_columns(way: str, told: dict) -> dict:
    """Return the columns that are equal in every framework, as far as ``way`` can fill them.

    Parts that have no op of their own are left out.
    """
    found = {}
    for part, row in told["parts"].items():
        if row["ops"]:
            names = (*doc.EQUAL, "flops") if part == doc.ALL_FLOPS else doc.EQUAL
            found[part] = {name: row[name] for name in names if name not in doc.WAYS[way].without}
    return found


def assert_as_written(way: str, folder: Path) -> None:
    """Train the model now, and assert that every column that must be equal is as on the page."""
    if doc.lacking(way):
        pytest.skip(f"{way}: {doc.lacking(way)}")
    now, written = doc.measured(way, folder), table()[way]
    assert now["steps"] == written["steps"] == doc.STEPS
    assert equal_columns(way, now) == equal_columns(way, written)
    for part, row in now["parts"].items():
        assert row["layer"] == written["parts"][part]["layer"]
