"""A function that waits for an import: called once, and wrapt imported no earlier than the module."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import opscope

ROOT = Path(opscope.__file__).resolve().parents[1]


def run(folder: Path, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    for name in ("abacus", "bead"):
        (folder / f"{name}.py").write_text(f"name = {name!r}\n")
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    begin = "import sys\nfrom opscope.core.capture import after_import\nheard = []\n"
    done = subprocess.run(
        [sys.executable, *options, "-c", begin + textwrap.dedent(code)],
        cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def test_wrapt_is_imported_with_the_first_module_that_is_waited_for(tmp_path):
    run(
        tmp_path,
        """
        after_import.call(lambda module: heard.append(module.name), "abacus")
        after_import.call(lambda module: heard.append(module.name), "bead")
        import decimal
        assert "wrapt" not in sys.modules and heard == []
        import abacus
        assert "wrapt" in sys.modules and heard == ["abacus"]
        import bead
        assert heard == ["abacus", "bead"]
        assert not any(type(one).__module__ == after_import.__name__ for one in sys.meta_path)
        after_import.call(lambda module: heard.append("now"), "abacus")
        assert heard[-1] == "now"
        """,
    )


def test_several_functions_wait_for_a_module_and_each_is_called_once(tmp_path):
    run(
        tmp_path,
        """
        for number in range(3):
            after_import.call(lambda module, n=number: heard.append(n), "abacus")
        import abacus, importlib
        assert heard == [0, 1, 2]
        assert abacus.__spec__.loader.__class__.__name__ == "SourceFileLoader"
        importlib.reload(abacus)
        assert heard == [0, 1, 2]
        """,
    )


def test_a_module_that_is_only_looked_for_is_still_waited_for(tmp_path):
    run(
        tmp_path,
        """
        import importlib.util
        after_import.call(lambda module: heard.append(module.name), "abacus")
        assert importlib.util.find_spec("abacus") is not None and heard == []
        import abacus
        assert heard == ["abacus"]
        """,
    )


def test_a_module_that_is_missing_is_missing_as_without_opscope(tmp_path):
    run(
        tmp_path,
        """
        after_import.call(lambda module: heard.append(module), "no_such_module")
        try:
            import no_such_module
        except ModuleNotFoundError as error:
            assert error.name == "no_such_module"
        else:
            raise SystemExit("found")
        assert heard == []
        """,
    )


def test_without_wrapt_the_program_s_import_goes_on(tmp_path):
    done = run(
        tmp_path,
        """
        sys.modules["wrapt"] = None  # its import raises
        after_import.call(lambda module: heard.append(module), "abacus")
        import abacus
        assert abacus.name == "abacus" and heard == []
        """,
    )
    assert "abacus is not observed" in done.stderr


def test_threads_that_import_at_once_are_all_heard(tmp_path):
    run(
        tmp_path,
        """
        import threading
        for _ in range(20):
            for name in ("abacus", "bead"):
                sys.modules.pop(name, None)
                after_import.call(lambda module: heard.append(module.name), name)
        together = threading.Barrier(2)
        def load(name):
            together.wait()
            __import__(name)
        both = [threading.Thread(target=load, args=(name,)) for name in ("abacus", "bead")]
        for one in both: one.start()
        for one in both: one.join()
        assert sorted(heard) == ["abacus"] * 20 + ["bead"] * 20, heard
        """,
    )


@pytest.mark.parametrize("first", ["abacus", "wrapt", "subprocess"])
def test_a_module_that_wrapt_itself_imports_is_heard_once(tmp_path, first):
    """wrapt loads asyncio, and that subprocess: both may be waited for as the import of another begins."""
    done = run(
        tmp_path,
        f"""
        assert "subprocess" not in sys.modules
        def wait():
            for name in ("asyncio", "subprocess"):
                after_import.call(lambda module: heard.append(module.__name__), name)
        after_import.as_it_begins(wait)
        if {first!r} != "abacus":
            wait()
        after_import.call(lambda module: heard.append(module.name), "abacus")
        import {first}
        import abacus, asyncio, subprocess
        assert set(heard) == {{"abacus", "asyncio", "subprocess"}}, heard
        if {first!r} == "abacus":
            assert len(heard) == 3, heard
        """,
    )
    assert done.stderr == ""
