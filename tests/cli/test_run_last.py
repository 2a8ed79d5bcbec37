"""`opscope run --last`: the last of a run, and a profile of each slow step while it runs."""

from __future__ import annotations

import textwrap
from pathlib import Path

import polars as pl
import pytest

import opscope

from .test_run import cli

PROGRAM = """
    import sys, time, opscope
    for number in range(60):
        opscope.step(number)
        with opscope.annotate("work"):
            time.sleep(3 if number == 30 else 0.01)
    if sys.argv[1:]:
        raise KeyError("secret")
"""


def steps(path: Path) -> list[str]:
    found = opscope.load(path).trace["ranges"]
    return found.filter(pl.col("category") == "step").sort("start")["text"].cast(str).to_list()


def notes(path: Path) -> str:
    return " ".join(opscope.load(path).trace["notes"]["what"].cast(str))


def test_a_run_ends_with_its_last_steps_and_a_slow_step_has_a_profile(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(PROGRAM))
    done = cli(tmp_path, "run", "--last", "5 steps", "--slow", "60", "--", "train.py", "fail")
    assert done.returncode == 1, done.stderr
    assert steps(tmp_path / "train.opscope")[-1] == "step 59"
    assert len(steps(tmp_path / "train.opscope")) <= 6
    assert "an exception left it: KeyError" in notes(tmp_path / "train.opscope")
    slow = tmp_path / "train-slow-1.opscope"
    assert "times the median before it" in notes(slow)
    assert {"step 29", "step 30", "step 31", "step 32"} <= set(steps(slow))
    assert "wrote train-slow-1.opscope" in done.stderr
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "train-slow-1.opscope",
        "train.opscope",
        "train.py",
    ]


@pytest.mark.parametrize(
    "options",
    [
        ("--slow", "3"),
        ("--last-signal", "USR2"),
        ("--last", "soon"),
        ("--last", "5s", "--slow", "0.5"),
        ("--last", "5s", "--last-signal", "KILL"),
        ("--last", "5s", "--steps", "3:6"),
        ("--last", "5s", "--whole"),
        ("--last", "5s", "--backend", "xplane"),
    ],
)
def test_what_contradicts_itself_is_refused_before_the_program_runs(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    done = cli(tmp_path, "run", *options, "--", "python", "-c", "print('ran')")
    assert done.returncode == 2
    assert "ran" not in done.stdout
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
