"""A program that Ctrl-C ended ends by SIGINT, whatever runs at its exit; another end is left as it is."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: ``exec`` of text stands for a module with named tuples that is imported at the exit.
PROGRAM = """
import atexit, os, signal, sys, time
import opscope
from opscope.core.capture import session

session._hook_exit_and_fork()
atexit.register(lambda: exec("pass"))
{body}
"""


def ended(tmp_path: Path, body: str, *options: str) -> int:
    (tmp_path / "program.py").write_text(PROGRAM.format(body=body))
    done = subprocess.run(
        [sys.executable, *(options or ("program.py",))],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    return done.returncode


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT ends no process there")
@pytest.mark.parametrize("options", [("program.py",), ("-m", "program")])
def test_what_runs_at_the_exit_leaves_an_end_by_an_interrupt(tmp_path, options):
    body = "os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)"
    assert ended(tmp_path, body, *options) == -signal.SIGINT


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("try:\n    raise KeyboardInterrupt\nexcept KeyboardInterrupt:\n    pass", 0),
        ("raise ValueError", 1),
        ("sys.exit(3)", 3),
        # as a notebook does with an error of a cell
        ("def cell():\n    try:\n        exec('raise KeyboardInterrupt', globals())\n"
         "    except KeyboardInterrupt as error:\n        sys.last_value = error\ncell()", 0),
    ],
)  # fmt: skip
def test_another_end_is_left_as_it_is(tmp_path, body, status):
    assert ended(tmp_path, body) == status
