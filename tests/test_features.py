"""docs/features.md is true: each row's commands run on their inputs and do what the row claims (tests/features.toml).

A check that needs a framework runs in that one's environment; the others run where none is installed, as the pages of
the documentation do.
"""

from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.command import opscope
from tests.script import ROOT, module_at
from tests.traces import ROOT as SHARED

make = module_at("scripts/make_features.py")
FEATURES = make.read()
ROWS = make.rows(FEATURES)
FRAMEWORKS = ("torch", "tensorflow", "jax", "mindspore", "onnxruntime")
INSTALLED = [name for name in FRAMEWORKS if find_spec(name)]
CLAIMS = {"exit", "says", "columns", "rows", "least", "values", "files"}


def here(check: dict) -> bool:
    return check["needs"] in INSTALLED if "needs" in check else not INSTALLED


def inputs() -> dict[str, Path]:
    return {
        name: (ROOT if path.startswith("examples/") else SHARED) / path
        for name, path in FEATURES["inputs"].items()
    }


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess:
    """A command as a user types it; one that runs a program of the user's is a process of its own."""
    if words[0] == "opscope" and "--" not in words:
        return opscope(*words[1:], cwd=folder, OPSCOPE_KEEP="0")
    words = [sys.executable, "-m", *words]
    words = [sys.executable if word == "python" else word for word in words]
    return subprocess.run(
        words,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )


def table(answer: object, name: str) -> list[dict]:
    rows = answer[name] if name else answer
    if isinstance(rows, dict) and all(isinstance(part, list) for part in rows.values()):
        rows = [row for part in rows.values() for row in part]  # DLProf's reports have titles
    return rows if isinstance(rows, list) else [rows]


def hold(check: dict, done: subprocess.CompletedProcess, folder: Path) -> None:
    """Compare each claim of a check with what its command did."""
    printed = done.stdout + done.stderr
    assert done.returncode == check.get("exit", 0), printed[-2000:]
    for text in check.get("says", ()):
        assert text in printed, f"{text!r} is not in {printed[:2000]}"
    answer = None
    if "--json" in check["run"].split():
        answer = json.loads(done.stdout)
        assert answer, "the JSON is empty"
    for name, columns in check.get("columns", {}).items():
        rows = table(answer, name)
        assert rows, f"{name} is empty"
        assert set(columns) <= set(rows[0]), f"{name} has {list(rows[0])}"
    for name, count in check.get("rows", {}).items():
        assert len(table(answer, name)) == count, name
    for name, count in check.get("least", {}).items():
        assert len(table(answer, name)) >= count, name
    for where, value in check.get("values", {}).items():
        name, column = where.split(".")
        assert table(answer, name)[0][column] == value, where
    for pattern, text in check.get("files", {}).items():
        paths = sorted(folder.glob(pattern))
        assert paths, f"no {pattern} in {sorted(map(str, folder.rglob('*')))}"
        content = b"".join(path.read_bytes() for path in paths if path.is_file())
        assert content.strip(), f"{pattern} is empty"
        assert text.encode() in content, f"{text!r} is not in {pattern}"


def there(name: str) -> bool:
    """Whether a test, a file of tests or a folder of them is in the repository."""
    path, _, function = name.partition("::")
    if not function:
        return (ROOT / path).exists()
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_says_only_what_the_page_may_hold(row):
    assert set(ROWS[row]) <= {"feature", "note", "lacks", "unseen", "checks"}
    assert ROWS[row].get("unseen", {}).keys() <= FEATURES["reasons"].keys()
    for check in ROWS[row]["checks"]:
        (kind,) = {"run", "code", "test"} & set(check)
        assert set(check) - {kind, "needs"} <= (CLAIMS if kind == "run" else set())
        assert check.get("needs", "torch") in FRAMEWORKS
        if kind == "test":
            assert there(check["test"]), f"{check['test']} is gone"
    # code that prepares a file for the next command claims nothing; the last one has to
    assert all("assert" in check["code"] for check in ROWS[row]["checks"][-1:] if "code" in check)
    assert ROWS[row]["checks"], "a row without a claim is not shown"


@pytest.mark.parametrize(
    "row",
    [name for name, row in ROWS.items() if any("test" not in c and here(c) for c in row["checks"])],
)
def test_the_commands_of_a_row_do_what_it_claims(row, tmp_path):
    files = inputs()
    for check in ROWS[row]["checks"]:
        if "test" in check or not here(check):
            continue
        text = check.get("run") or check["code"]
        for name, path in files.items():
            if f"{{{name}}}" in text or f'"{name}"' in check.get("code", ""):
                if not path.exists():
                    pytest.skip(f"needs {path}")
                text = text.replace(f"{{{name}}}", str(path))
        if "run" in check:
            hold(check, run(shlex.split(text), tmp_path), tmp_path)
        else:
            done = subprocess.run(
                [
                    sys.executable,
                    "-c",
                    f"FILES = { ({n: str(p) for n, p in files.items()})!r}\n{text}",
                ],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=300,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                check=False,
            )
            assert done.returncode == 0, done.stderr[-2000:]


def test_the_page_is_made_from_the_rows():
    assert make.page() == make.PAGE.read_text("utf-8"), "run scripts/make_features.py"


def test_a_claim_that_does_not_hold_fails(tmp_path):
    """The comparison itself: each kind of claim refuses a wrong answer."""
    (tmp_path / "a.txt").write_text("b")
    done = subprocess.CompletedProcess([], 0, '{"t": [{"c": 1}]}', "")
    right = {"run": "x --json", "columns": {"t": ["c"]}, "rows": {"t": 1}, "values": {"t.c": 1}}
    hold(right | {"least": {"t": 1}, "says": ["t"], "files": {"a*": "b"}}, done, tmp_path)
    wrong = (
        {"exit": 2},
        {"says": ["u"]},
        {"columns": {"t": ["d"]}},
        {"rows": {"t": 2}},
        {"least": {"t": 2}},
        {"values": {"t.c": 2}},
        {"files": {"b*": ""}},
        {"files": {"a*": "c"}},
    )
    for claim in wrong:
        with pytest.raises(AssertionError):
            hold({"run": "x --json"} | claim, done, tmp_path)
