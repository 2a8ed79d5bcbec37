"""The page's own code under node: what a single file answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "web"


def built(folder: Path, source: Path = WEB / "src" / "file.ts") -> Path:
    """Return a module of the page for node, built in ``folder``; skips without node or web's packages."""
    program = WEB / "node_modules" / "esbuild" / "bin" / "esbuild"
    if shutil.which("node") is None or not program.exists():
        # as in CI, what is missing fails where OPSCOPE_VIEWER=1
        (pytest.fail if os.environ.get("OPSCOPE_VIEWER") == "1" else pytest.skip)(
            "needs node, and npm ci in web/"
        )
    made = folder / f"{source.stem}.mjs"
    command = [str(program), str(source), "--bundle", "--format=esm", "--target=es2022", f"--outfile={made}"]  # fmt: skip
    done = subprocess.run(command, cwd=WEB, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made


def answers(module: Path, html: Path, questions: list[tuple[str, dict]]) -> list[dict]:
    """Return what the file's page would be answered: ``answer`` (``bytes`` in base64 of the timeline), or
    ``status`` and ``message``."""
    return _asked("ask_file.mjs", module, {"html": str(html), "questions": questions})


def timeline_answers(module: Path, html: Path, calls: list[list]) -> list:
    """Return what calls of the file's timeline (name, arguments) return."""
    return _asked("ask_timeline.mjs", module, {"html": str(html), "calls": calls})


def _asked(program: str, module: Path, given: dict) -> list:
    done = subprocess.run(
        ["node", str(Path(__file__).with_name(program)), str(module)],
        input=json.dumps(given), capture_output=True, text=True, check=False, encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
