"""Every snippet of the documentation runs: fenced blocks marked bash or python, in a folder of their own.

A mark after the language (```bash torch, keras) names what a block needs; ``cell`` is one of a notebook, which
tests/test_notebook.py runs. The blocks of one document run in order in one folder, as a reader would run them.
A document runs where a block of it needs a framework that is installed; where none is, without such blocks. What
needs no framework is so run once, and not again beside each of them.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from tests.conftest import TRACES
from tests.gloo import unaborted

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
DOCUMENTS = [*PAGES, *sorted((ROOT / "docs").rglob("*.md"))]
FRAMEWORKS = ("torch", "tensorflow", "jax", "keras", "mindspore", "onnxruntime")
FENCE = re.compile(r"^```(\w*)[ ]?([\w, ]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: What the README's second command is, which runs this very test: .ci/run calls it.
TESTS = "bash scripts/test.sh"
#: A line of a snippet that names a shared trace, as which the file of the snippet is given.
STANDS_FOR = re.compile(r"^# (\S+) stands for (\S+)$", re.MULTILINE)
RECIPES = sorted(
    path for path in (ROOT / "docs" / "cookbook").glob("*.md") if path.name != "index.md"
)


def blocks(document: Path) -> list[tuple[str, str, str]]:
    return [match.groups() for match in FENCE.finditer(document.read_text(encoding="utf-8"))]


def wanted(needs: str) -> list[str]:
    return [name.strip() for name in needs.split(",") if name.strip()]


def runnable(document: Path) -> list[tuple[str, str, str]]:
    return [
        block
        for block in blocks(document)
        if block[0] in ("bash", "python") and "cell" not in wanted(block[1])
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_fence_says_what_it_is(document):
    for language, needs, _ in blocks(document):
        # no other name of a language that would be run
        assert language in ("bash", "python", "text", "json", ""), f"{document.name}: ```{language}"
        assert set(wanted(needs)) <= {"cell", "shared", "lightning", "transformers", *FRAMEWORKS}, (
            f"{document.name}: ```{language} {needs}"
        )
    assert document.read_text(encoding="utf-8").count("\n```") == 2 * len(blocks(document))


@pytest.mark.parametrize(
    "document", [path for path in DOCUMENTS if runnable(path)], ids=lambda path: path.name
)
def test_snippets_run(document, tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    here = [block for block in runnable(document) if all(map(installed, wanted(block[1])))]
    of_framework = [needs for _, needs, _ in here if set(wanted(needs)) - {"shared"}]
    if any(map(installed, FRAMEWORKS)) and not of_framework:
        pytest.skip("it needs no framework that is here: it runs where none is")
    ran = 0
    for language, _, code in here:
        command = [sys.executable, "-c", code] if language == "python" else ["bash", "-ec", code]
        if code.strip() == TESTS:
            assert TESTS in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
            continue
        for name, trace in STANDS_FOR.findall(code):
            (tmp_path / name).symlink_to(TRACES / trace)
        run = partial(
            subprocess.run,
            command,
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            check=False,
        )
        done = unaborted(run)
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        ran += 1
    if not ran:
        pytest.skip("its snippets need a framework that is not here")


def installed(name: str) -> bool:
    """Whether the distribution is; a folder of tests of that name is a module to Python as well.

    ``shared``: whether the traces are there that the project does not ship.
    """
    if name == "shared":
        return TRACES.is_dir()
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


def test_the_cookbook_says_of_each_recipe_how_far_a_test_runs_it():
    listed = {link for link in links(ROOT / "docs" / "cookbook" / "index.md") if "/" not in link}
    assert listed == {path.name for path in RECIPES}
    assert len(RECIPES) >= 12
    for path in RECIPES:
        text = path.read_text(encoding="utf-8")
        (said,) = re.findall(r"^\*\*Checked:\*\* (whole|its analysing half)", text, re.MULTILINE)
        needs = [set(wanted(each)) for _, each, _ in runnable(path)]
        assert needs, path.name
        assert any("shared" in each for each in needs) == (said == "its analysing half"), path.name
        assert len(text.split()) < 700, f"{path.name} is more than a page"


LINK = re.compile(r"\]\(([^)\s]+)\)")


def links(document: Path) -> list[str]:
    """Where the document's links lead; what stands in fences and in code is none."""
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", document.read_text(encoding="utf-8")))
    return LINK.findall(text)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_within_the_repository_lead_somewhere(document):
    for link in links(document):
        path, _, section = link.partition("#")
        if re.match(r"\w+:", link):
            continue
        place = document.parent / path if path else document
        assert place.exists(), f"{document.name}: {link}"
        if section:
            titles = re.findall(r"^#+ (.*)$", place.read_text(encoding="utf-8"), re.MULTILINE)
            found = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
            assert section in found, f"{document.name}: {link}"


def test_the_readme_s_links_work_outside_the_repository():
    """As the metadata of a built package has them: each is absolute, and its file is in the repository."""
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project = toml.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    assert hook["fragments"] == [{"path": "README.md"}]
    base = project["project"]["urls"]["Repository"] + "/blob/main/"
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for change in hook["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    found = LINK.findall(text)
    assert len(found) == len(LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))) > 2
    urls = [url for name, url in project["project"]["urls"].items() if name != "Repository"]
    for link in (*found, *urls):
        assert re.match(r"https://", link), link
        if link.startswith(base):
            assert (ROOT / link.removeprefix(base)).exists(), link


def test_every_page_of_the_documentation_is_reached_from_its_first():
    reached, waiting = set(), [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            here = [link.partition("#")[0] for link in links(page) if not re.match(r"\w+:", link)]
            waiting += [(page.parent / link).resolve() for link in here if link]
    assert set((ROOT / "docs").rglob("*.md")) <= reached
