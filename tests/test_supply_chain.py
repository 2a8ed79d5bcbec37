"""What comes from others: every bundled file has the hash that SECURITY.md says; every lock is whole."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

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
    monkeypatch.setenv("OPSCOPE_LOCK", "1" if asked else "")
    assert install("lint", ["x"]) == 0
    assert install("core", ["x"]) == (1 if asked else 0)
    locked = ["install", "--require-hashes", "--no-deps", "-r", str(tmp_path / "core.txt")]
    # what does not have its hash ends it: nothing else is installed
    assert calls[1:] == ([locked] if asked else [["install", "x"]])
    assert calls[0] == ["install", "x"]
    assert sys.executable


def test_an_audit_that_has_no_answer_says_so(chain, monkeypatch, capsys):
    answers = iter(["", '{"error": "refused"}'])

    def run(command, **_):
        return subprocess.CompletedProcess(command, 1, next(answers, ""), "refused")

    monkeypatch.setattr(subprocess, "run", run)
    assert chain["audit"]() == 0
    said = capsys.readouterr().out
    assert said.count("no answer") == len(chain["ENVIRONMENTS"]) + 1
