"""Commands load Polars with options for its allocator, which nobody else gets to see."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

TOLD = """
import json, os, sys
from opscope.cli.kept_pages import with_kept_pages
assert "polars" not in sys.modules
seen = []
sys.meta_path.insert(0, type("Watch", (), {"find_spec": staticmethod(
    lambda name, *rest: seen.append(os.environ.get("_RJEM_MALLOC_CONF")) if name == "polars" else None)}))
result = with_kept_pages(lambda one, *, other: (one, other))(1, other=2)
print(json.dumps([seen, os.environ.get("_RJEM_MALLOC_CONF"), list(result), "polars" in sys.modules]))
"""


def told(**more: str) -> list:
    env = {name: value for name, value in os.environ.items() if name != "_RJEM_MALLOC_CONF"}
    done = subprocess.run([sys.executable, "-c", TOLD], env=env | more, check=True, capture_output=True, text=True)  # fmt: skip
    found: list = json.loads(done.stdout)
    return found


def test_polars_is_loaded_with_the_options_and_no_child_sees_them():
    assert told() == [["dirty_decay_ms:1000"], None, [1, 2], True]


def test_what_the_user_set_stays():
    own = "dirty_decay_ms:0"
    assert told(_RJEM_MALLOC_CONF=own)[1:] == [own, [1, 2], False]


def test_no_variable_stays_where_polars_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch):
    from opscope.cli.kept_pages import with_kept_pages

    seen = []

    def fails(*_: object) -> None:
        seen.append(os.environ.get("_RJEM_MALLOC_CONF"))
        raise ImportError

    monkeypatch.delitem(sys.modules, "polars", raising=False)
    monkeypatch.delenv("_RJEM_MALLOC_CONF", raising=False)
    with monkeypatch.context() as patched:
        patched.setattr("builtins.__import__", fails)
        with pytest.raises(ImportError):
            with_kept_pages(print)()
    assert seen == ["dirty_decay_ms:1000"]
    assert "_RJEM_MALLOC_CONF" not in os.environ
