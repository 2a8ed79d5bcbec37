"""Programs recorded by ``opscope run``, and what holds of the difference of any two of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import opscope

ROOT = Path(opscope.__file__).resolve().parents[1]
ONE_NET = Path(__file__).with_name("one_net.py")


def recorded(
    folder: Path, name: str, *command: object, options: tuple[str, ...] = (), **environ: str
) -> Path:
    """Return the profile of ``python *command``, named ``name``."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "opscope", "run", "--no-report", *options, "-o", name, "--",
         sys.executable, *map(str, command)],
        cwd=folder, env={**os.environ, **environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / f"{name}.opscope"


def difference(a: Path, b: Path) -> dict:
    """Return what ``opscope diff A B --json --full`` prints; its parts and causes add up to the step to the ns."""
    done = subprocess.run(
        [sys.executable, "-m", "opscope", "diff", str(a), str(b), "--json", "--full"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for table in ("parts", "causes"):
        for column in ("a", "b", "change"):
            assert sum(row[column] or 0 for row in found[table]) == found["step"][column]
    return found


def part(found: dict, name: str) -> dict:
    """Return a part of the step."""
    return next(row for row in found["parts"] if row["part"] == name)


def matched_layers(found: dict, kinds: tuple[str, ...]) -> set[tuple[str, str]]:
    """Return the layers in A and in B of ops whose name holds one of ``kinds`` and that are in both."""
    return {
        (row["layer"], row["layer_b"])
        for row in found["ops"]
        if any(kind in row["op"] for kind in kinds) and row["layer_b"] and row["matched"]
    }
