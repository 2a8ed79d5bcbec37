"""Every snippet of the documentation runs: fenced blocks marked bash or python, in a folder of their own.

A mark after the language (```bash torch, keras) names what a block needs. The blocks of one document run in
order in one folder, as a reader would run them.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
FRAMEWORKS = ("torch", "tensorflow", "jax", "keras")
FENCE = re.compile(r"^```(\w*)[ ]?([\w, ]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: What the README's second command is, which runs this very test: .ci/run calls it.
TESTS = "bash scripts/test.sh"


def blocks(document: Path) -> list[tuple[str, str, str]]:
    return [match.groups() for match in FENCE.finditer(document.read_text(encoding="utf-8"))]


def runnable(document: Path) -> list[tuple[str, str, str]]:
    return [block for block in blocks(document) if block[0] in ("bash", "python")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_fence_says_what_it_is(document):
    for language, needs, _ in blocks(document):
        # no other name of a language that would be run
        assert language in ("bash", "python", "text", "json", ""), f"{document.name}: ```{language}"
        assert set(wanted(needs)) <= {"lightning", "transformers", *FRAMEWORKS}, (
            f"{document.name}: ```{language} {needs}"
        )
    assert document.read_text(encoding="utf-8").count("\n```") == 2 * len(blocks(document))


@pytest.mark.parametrize(
    "document", [path for path in DOCUMENTS if runnable(path)], ids=lambda path: path.name
)
def test_snippets_run(document, tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    ran = 0
    for language, needs, code in runnable(document):
        if not all(map(installed, wanted(needs))):
            continue
        command = [sys.executable, "-c", code] if language == "python" else ["bash", "-ec", code]
        if code.strip() == TESTS:
            assert TESTS in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
            continue
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        ran += 1
    if not ran:
        pytest.skip("its snippets need a framework that is not here")


def wanted(needs: str) -> list[str]:
    return [name.strip() for name in needs.split(",") if name.strip()]


def installed(name: str) -> bool:
    """Whether the distribution is; a folder of tests of that name is a module to Python as well."""
    for distribution in (name, f"{name}-cpu"):
        try:
            return bool(importlib.metadata.version(distribution))
        except importlib.metadata.PackageNotFoundError:
            continue
    return False


def environment(folder: Path) -> dict[str, str]:
    """opscope and python on PATH are those of this environment, as for a user who installed it."""
    programs = folder / ".programs"
    if not programs.exists():
        programs.mkdir()
        # not a link, beside which Python would look for its environment
        (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (programs / "python").chmod(0o755)
        (programs / "opscope").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m opscope "$@"\n')
        (programs / "opscope").chmod(0o755)
        # the demo's environment: this one, with nothing left to install
        (programs / "bin").mkdir()
        (programs / "bin" / "opscope").symlink_to(programs / "opscope")
        (programs / "bin" / "python").write_text(
            f'#!/bin/sh\ncase "$*" in *pip*) exit 0;; esac\nexec "{sys.executable}" "$@"\n'
        )
        (programs / "bin" / "python").chmod(0o755)
    return {
        **os.environ,
        "PATH": os.pathsep.join((str(programs), os.environ["PATH"])),
        "PYTHONPATH": str(ROOT),
        "VENV": str(programs),
    }


def test_every_column_of_the_reports_is_documented():
    text = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
    from opscope.reports.content import COLUMNS

    for name, meaning in COLUMNS.items():
        assert f"| `{name}` | {meaning} |" in text, "run scripts/column_docs.py"
