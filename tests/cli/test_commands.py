"""The table of commands: each is loaded when it is typed, and another package adds its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMAND = """
import sys
from typing import Annotated
import typer

def count(number: Annotated[int, typer.Argument(help="How far.")]) -> None:
    "Count to NUMBER."
    print(*range(1, number + 1))
    print(*(name for name in sys.modules if name.startswith("opscope.cli.")))
"""


def typed(folder: Path, *words: str, **points: str) -> subprocess.CompletedProcess[str]:
    """Type a command line where a package names these entry points."""
    (folder / "abacus_command.py").write_text(COMMAND)
    information = folder / "opscope_abacus-1.0.dist-info"
    information.mkdir(exist_ok=True)
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: opscope-abacus\nVersion: 1.0\n"
    )
    lines = "\n".join(f"{name} = {value}" for name, value in points.items())
    (information / "entry_points.txt").write_text(f"[opscope.commands]\n{lines}\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(folder)))}
    return subprocess.run(
        [sys.executable, "-m", "opscope", *words], env=env, capture_output=True, text=True
    )


def test_a_package_s_command_runs_without_loading_another(tmp_path):
    done = typed(tmp_path, "count", "3", count="abacus_command:count")
    assert (done.returncode, done.stderr) == (0, "")
    numbers, modules = done.stdout.splitlines()
    assert numbers == "1 2 3"
    assert set(modules.split()) == {f"opscope.cli.{name}" for name in
                                  ("app", "commands", "declared", "grouped_help", "quick", "start")}  # fmt: skip


def test_the_help_names_a_package_s_command_after_opscope_s_own(tmp_path):
    done = typed(tmp_path, "--help", count="abacus_command:count")
    assert done.stdout.splitlines()[-1].split(maxsplit=1) == ["count", "Count to NUMBER"]
    assert [line.split()[0] for line in done.stdout.partition("Record:")[2].splitlines()[1:2]] == [
        "run"
    ]


def test_a_package_cannot_take_a_command_of_opscope(tmp_path):
    done = typed(tmp_path, "ops", "--help", ops="abacus_command:count")
    assert "Count to" not in done.stdout
    assert done.returncode == 0


def test_a_command_that_fails_to_load_is_left_out_and_blocks_no_other(tmp_path):
    points = {"count": "abacus_command:count", "broken": "abacus_command:absent"}
    done = typed(tmp_path, "--help", **points)
    assert "opscope: the command broken (abacus_command:absent) is left out" in done.stderr
    assert "Count to NUMBER" in done.stdout
    assert typed(tmp_path, "broken", **points).returncode == 2


def test_a_misspelt_command_is_told_what_is_alike(tmp_path):
    done = typed(tmp_path, "coumt", count="abacus_command:count")
    assert done.returncode == 2
    assert "No such command 'coumt'. Did you mean 'count'" in done.stderr
