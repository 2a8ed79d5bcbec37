"""Write ``opscope/cli/help.txt``, the help of ``opscope --help`` as Typer shows it on a terminal of 80 columns.

Usage: python scripts/make_help.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


#: A child's code: the tests' runners of Typer have another width than a terminal.
_CODE = """
import sys
from opscope.core import registered
registered.entries = lambda group: {}
from opscope.cli.app import app
app(["--help"], prog_name="opscope")
"""


def help_text() -> str:
    """Return the help with opscope's own commands alone."""
    env = {**os.environ, "COLUMNS": "80", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", _CODE], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    (ROOT / "opscope" / "cli" / "help.txt").write_text(help_text(), encoding="utf-8")
