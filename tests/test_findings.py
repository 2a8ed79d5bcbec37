"""Each script of findings/ has its form, and names in findings/README.md the test of what opscope does about it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "findings"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.sh"))
ROW = re.compile(r"^\| `(\w+)` \| .+ \| `(tests/[\w/]+\.py)::(\w+)` \|$", re.MULTILINE)
HEADER = ("One would guess", "What happens", "Seen with", "Why it matters to a profiler")

if not SCRIPTS:
    pytest.skip("the source distribution has no findings", allow_module_level=True)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_what_it_shows_and_installs_pinned_versions_in_a_folder_of_its_own(name):
    text = (FOLDER / f"{name}.sh").read_text("utf-8")
    header, _, body = text.partition("set -euo pipefail\n")
    places = [header.find(f"# {part}: ") for part in HEADER]
    assert -1 not in places
    assert places == sorted(places)
    assert body.startswith("folder=$(mktemp -d)\ntrap 'rm -rf \"$folder\"' EXIT\n")
    (packages,) = re.findall(r"/pip\" install [-\w ]*(.+)", body)
    assert re.findall(r"'[\w\[\]-]+==[\d.]+'", packages)
    assert "opscope" not in text
    assert "assert " in body or "\n[ " in body, "it could not fail"


def test_each_has_a_test_of_what_opscope_does_about_it():
    rows = ROW.findall((FOLDER / "README.md").read_text("utf-8"))
    assert [name for name, _, _ in rows] == SCRIPTS
    for name, file, test in rows:
        functions = ast.walk(ast.parse((ROOT / file).read_text("utf-8")))
        names = {node.name for node in functions if isinstance(node, ast.FunctionDef)}
        assert test in names, f"{name}: {file} has no {test}"
