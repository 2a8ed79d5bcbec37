"""Paths that the documentation named before its modules moved: they work, and say that they go."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest

from opscope.core.moved import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_the_older_path_gives_the_same_module_and_warns(old, monkeypatch):
    new = import_module(MOVED[old])
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=rf"{old} is now {MOVED[old]}"):
        assert import_module(old) is new
    assert new.__name__ == new.__spec__.name == MOVED[old]


def test_a_statement_that_imports_from_the_older_path_is_where_the_warning_points(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(
        "import opscope.core\n"
        "from opscope.core.session import SessionError\n"
        "from opscope.core import session\n"
        "import opscope.core.session\n"
        "assert session.SessionError is SessionError\n"
        "from opscope.core.capture.session import SessionError as same\n"
        "assert same is SessionError\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "always::DeprecationWarning", file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    warned = [line for line in done.stderr.splitlines() if "DeprecationWarning" in line]
    assert len(warned) == 1
    assert warned[0].startswith(f"{file}:2: ")


def test_other_missing_modules_are_missing_still():
    assert find_spec("opscope.core.never_was") is None
    with pytest.raises(ModuleNotFoundError):
        import_module("opscope.core.never_was")
