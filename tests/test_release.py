"""What a release states, said once: the version, the Pythons, the license, the address of the project."""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

import opscope

ROOT = Path(__file__).resolve().parents[1]
PROJECT = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli").loads(
    (ROOT / "pyproject.toml").read_text("utf-8")
)["project"]
CITATION = ROOT / "CITATION.cff"
CONTAINER = ROOT / ".devcontainer"


def test_the_citation_has_the_version_and_the_license_of_the_package():
    if not CITATION.is_file():
        pytest.skip("the source distribution has no citation")
    stated = dict(re.findall(r"^([\w-]+): (.+)$", CITATION.read_text("utf-8"), re.MULTILINE))
    assert stated["cff-version"] == "1.2.0"
    assert stated["version"] == opscope.__version__
    assert stated["license"] == PROJECT["license"]
    assert {"title", "message", "type"} <= set(stated)


def test_the_release_is_tried_in_every_python_that_is_stated():
    stated = [
        text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)
    ]
    script = (ROOT / "scripts" / "check_release.sh").read_text("utf-8")
    tried = re.findall(r"python(3\.\d+)", re.search(r"PYTHONS:-([^}]*)\}", script)[1])
    assert set(stated) <= set(tried)
    assert PROJECT["requires-python"] == f">={min(tried, key=lambda text: int(text[2:]))}"


def test_the_address_of_the_project_stands_in_one_place():
    base = PROJECT["urls"]["Repository"]
    assert all(url.startswith(base) for url in PROJECT["urls"].values())
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "opscope").rglob("*.py")]
    assert [page.name for page in pages if base in page.read_text("utf-8")] == []


def test_the_container_installs_what_the_tests_need():
    if not CONTAINER.is_dir():
        pytest.skip("the source distribution has no container")
    made = json.loads((CONTAINER / "devcontainer.json").read_text("utf-8"))
    file = (CONTAINER / made["build"]["dockerfile"]).read_text("utf-8")
    for package in ("chromium", "g++", "nodejs", "npm", "python3-venv"):
        assert re.search(rf"\s{re.escape(package)}(\s|$)", file), package
    assert made["remoteUser"] in re.findall(r"^USER (\w+)$", file, re.MULTILINE)


def test_types_are_shipped():
    assert (Path(opscope.__file__).parent / "py.typed").is_file()
    assert "Typing :: Typed" in PROJECT["classifiers"]
