"""Light mode on any framework: a training that is watched from outside, plain or with faults planted in it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import polars as pl

import opscope
from opscope.core.light_format import PHASES
from opscope.core.schema import PROCESS_MEMORY

ROOT = Path(opscope.__file__).resolve().parents[1]
#: Steps of a training with planted faults, the first slow one and the next that is not, and how long a batch is
#: waited for (s). What is planted is long, so that other work on the machine plants no more.
STEPS, SLOW, USUAL, WAIT = 70, 45, 60, 0.1
#: Bytes that the program keeps of each step.
KEPT = 3 << 19
#: What programs begin with. They call ``fetched`` where a batch is made, and ``between(step)`` between two steps.
PRELUDE = f"""
import os, time
STEPS = int(os.environ["STEPS"])
PLANTED = os.environ["PLANTED"] == "1"
kept = []

def fetched():
    if PLANTED:
        time.sleep({WAIT})

def between(step):
    if not PLANTED:
        return
    kept.append(os.urandom({KEPT}))
    if step == {SLOW} - 1:
        time.sleep(1.5)  # what is usual is known from here on
    if {SLOW} <= step < {USUAL}:
        time.sleep(0.5)
"""


def watched(folder: Path, program: str, *, planted: bool, steps: int = 60, **more: str):
    """Run ``program`` under light mode; return its profile. What it prints last is the same without light mode."""
    path = folder / "train.py"
    path.write_text(PRELUDE + textwrap.dedent(program))
    planting = {"STEPS": str(steps), "PLANTED": str(int(planted)), "OPSCOPE_SAMPLES": "10"}
    spells = () if planted else ("--no-spells",)  # a busy machine makes spells too
    words = (
        "-m",
        "opscope",
        "run",
        "--light",
        *spells,
        "-o",
        "out",
        "--",
        sys.executable,
        str(path),
    )
    told, errors = _run(folder, *words, **planting, **more)
    assert (folder / "out.opscope").exists(), errors
    if not planted:
        plain, _ = _run(folder, str(path), **planting, **more)
        assert told.splitlines()[-1] == plain.splitlines()[-1]
    return opscope.load(folder / "out.opscope")


def _run(folder: Path, *words: str, **more: str) -> tuple[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def assert_phases(profile, steps: int, seen: set[str]) -> None:
    """Check that all ``steps`` were measured, that their phases add up, and that only ``seen`` are known."""
    frame = profile.light()
    assert frame["phase"].to_list() == ["step", *PHASES]
    whole, parts = frame.row(0, named=True), frame[1:].to_dicts()
    assert whole["steps"] == steps, frame
    assert sum(row["total"] or 0 for row in parts) == whole["total"]
    assert {row["phase"] for row in parts if row["total"]} == {*seen, "other"}
    assert all(row["reason"] for row in parts if row["total"] is None)
    assert profile.trace["ranges"].is_empty()


def assert_planted(profile, *, waits: bool = True, ahead: bool = False) -> None:
    """Check that the planted faults are seen: the slow loader, growing memory, and the slow spell, in full.

    ``ahead``: the loader prepares batches while the program works, so a busy machine waits less for it.
    """
    told = {row["finding"]: row for row in profile.diagnosis().to_dicts()}
    if waits:
        frame = profile.light().filter(pl.col("phase") == "input").row(0, named=True)
        assert frame["total"] >= (0.02 if ahead else 0.5) * STEPS * WAIT * 1e9
        assert ahead or told["input-bound"]["share"] > 0.05
    samples = profile.trace["samples"].filter(pl.col("name").cast(pl.String) == PROCESS_MEMORY)
    assert len(samples) >= 4
    # not by the finding: a spell's recording takes memory and gives it back, so not each quarter grows
    held = samples.sort("time")["value"]
    assert held[0] > 10e6
    assert held[-1] - held[0] > 0.5 * STEPS * KEPT
    cost = profile.light_cost().row(0, named=True)
    assert cost["spells_recorded"] >= 1
    assert cost["step_cost"] > 0
    assert cost["step_cost_error"] > 0
    recorded = profile.steps()["step"].drop_nulls().to_list()
    assert set(recorded) & set(range(SLOW, USUAL + 6)), recorded
    assert "recorded in full" in told["slow spells"]["text"]
    assert len(profile.trace["ranges"])
