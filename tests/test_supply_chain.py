"""What comes from others: every bundled file has the hash that SECURITY.md says; every lock is whole."""

from __future__ import annotations

import configparser
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "supply_chain.py"


@pytest.fixture(scope="module")
def chain():
    if not SCRIPT.is_file() or not (ROOT / "SECURITY.md").is_file():
        pytest.skip("an installed package has no scripts")
    return runpy.run_path(str(SCRIPT))


def test_the_page_has_the_hash_and_the_licence_of_every_bundled_file(chain):
    page = (ROOT / "SECURITY.md").read_text("utf-8")
    assert page == chain["bundled"](), "python scripts/supply_chain.py bundled"
    assert "preact" in page
    assert "gitleaks (MIT License)" in page


def test_each_lock_pins_what_it_names_with_a_hash(chain):
    assert {path.stem for path in chain["LOCKS"].glob("*.txt")} == set(chain["ENVIRONMENTS"])
    for path in chain["LOCKS"].glob("*.txt"):
        first, *lines = path.read_text("utf-8").splitlines()
        assert first.startswith("# Python 3."), path
        entries = [line for line in lines if line[0] != "#"]
        assert entries, path
        for entry in entries:
            name, _, digest = entry.partition(" --hash=sha256:")
            assert "==" in name, entry
            assert len(digest) == 64, entry


def locked(environment: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the versions that a lock pins, and the environment for markers: the Python in its first line."""
    text = (ROOT / "requirements" / f"{environment}.txt").read_text("utf-8")
    pins = re.findall(r"(?m)^([\w.\-]+)==(\S+) --hash", text)
    # builds of their own, as torch's: tox.ini has their versions
    pins += [(name, "") for name in re.findall(r"(?m)^# without a hash.*: (\S+)$", text)]
    python = text.partition(",")[0].removeprefix("# Python ")
    return {canonicalize_name(name): version for name, version in pins}, {"python_version": python}


def wanted(environment: str) -> Iterator[Requirement]:
    """Yield what an environment of tox installs: the package's dependencies, its extras', and its own."""
    project = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli").loads(
        (ROOT / "pyproject.toml").read_text("utf-8")
    )["project"]
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini", "utf-8")
    section = tox[f"testenv:{environment}"]
    extras = section.get("extras", tox["testenv"]["extras"]).split(",")
    lines = [
        re.sub(r"\{env:\w+:([^}]*)\}", r"\1", line) for line in section.get("deps", "").split("\n")
    ]
    lines += project["dependencies"]
    for extra in extras:
        lines += project["optional-dependencies"][extra.strip()]
    yield from map(Requirement, filter(None, (line.partition("#")[0].strip() for line in lines)))


@pytest.mark.parametrize("environment", [
    "lint", "core", "torch", "tensorflow", "jax", "mindspore", "onnxruntime", "viewer",
])  # fmt: skip
def test_what_an_environment_installs_is_in_its_lock(environment, chain):
    assert environment in chain["ENVIRONMENTS"]
    pins, python = locked(environment)
    asked = [one for one in wanted(environment) if not one.marker or one.marker.evaluate(python)]
    stale = [
        str(one)
        for one in asked
        if (version := pins.get(canonicalize_name(one.name))) is None
        or (version and version not in one.specifier)
    ]
    assert len(asked) > 10
    assert not stale, f"python scripts/supply_chain.py lock {environment}"


def test_every_extra_is_locked_or_said_to_be_on_demand(chain):
    project = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli").loads(
        (ROOT / "pyproject.toml").read_text("utf-8")
    )["project"]
    pinned = {name for environment in chain["ENVIRONMENTS"] for name in locked(environment)[0]}
    loose = {
        extra
        for extra, lines in project["optional-dependencies"].items()
        if not pinned.issuperset(canonicalize_name(Requirement(line).name) for line in lines)
    }
    assert loose <= set(chain["ON_DEMAND"]) <= set(project["optional-dependencies"])


@pytest.mark.parametrize("asked", [False, True])
def test_a_lock_is_used_where_it_is_asked_for_and_made_for_here(
    chain, asked, tmp_path, monkeypatch
):
    calls = []

    def run(command, **_):
        calls.append(command[4:])
        return subprocess.CompletedProcess(command, 1 if "--require-hashes" in command else 0)

    (tmp_path / "core.txt").write_text(chain["HERE"] + "\na==1 --hash=sha256:0\n")
    (tmp_path / "lint.txt").write_text("# Python 2.7, Plan9 z80\n")
    install = chain["install"]
    monkeypatch.setitem(install.__globals__, "LOCKS", tmp_path)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("OPSCOPE_LOCK", "1" if asked else "")
    assert install("lint", ["x"]) == 0
    assert install("core", ["x"]) == (1 if asked else 0)
    plain = ["install", "--no-compile"]
    locked = [*plain, "--require-hashes", "--no-deps", "-r", str(tmp_path / "core.txt")]
    # what does not have its hash ends it: nothing else is installed
    assert calls[1:] == ([locked] if asked else [[*plain, "x"]])
    assert calls[0] == [*plain, "x"]
    # what is installed already is not looked at again
    (tmp_path / "locked.txt").write_bytes((tmp_path / "core.txt").read_bytes())
    assert install("core", ["x"]) == 0
    assert calls[-1] == [*plain, "x"]
    assert sys.executable


def test_an_audit_that_has_no_answer_says_so(chain, monkeypatch, capsys):
    answers = iter(["", '{"error": "refused"}'])

    def run(command, **_):
        return subprocess.CompletedProcess(command, 1, next(answers, ""), "refused")

    monkeypatch.setattr(subprocess, "run", run)
    assert chain["audit"]() == 0
    said = capsys.readouterr().out
    assert said.count("no answer") == len(chain["ENVIRONMENTS"]) + 1
