"""docs/from-dlprof.md: each line of its table runs, DLProf's and opscope's own, and no switch is left out."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shlex
import shutil
import sqlite3
from pathlib import Path

import pytest

import opscope
from opscope.cli.dlprof.switches import SWITCHES
from tests.command import opscope as command
from tests.dlprof_bench import Bench
from tests.nvtx_tool import ROOT

PAGE = (ROOT / "docs" / "from-dlprof.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(dlprof [^`]*)` \| `(opscope [^`]*)` \|$", PAGE, re.MULTILINE)
#: The reports in DLProf's style; a double stands in where they are not there.
REAL = importlib.util.find_spec("opscope.reports.dlprof") is not None


@pytest.fixture
def full(nsys: Bench, shared: Path, tmp_path: Path) -> Bench:
    """A folder with all that the lines name: a program, an export, a database and a profile."""
    (nsys.folder / "train.py").write_text("import opscope\nopscope.step(0)\nopscope.step(1)\n")
    for name in ("nsys_profile.sqlite", "dlprof_dldb.sqlite"):
        shutil.copyfile(shared / "dlprof" / name, nsys.folder / name)
    with_domain = shutil.copyfile(nsys.folder / "nsys_profile.sqlite", tmp_path / "domain.sqlite")
    with contextlib.closing(sqlite3.connect(with_domain)) as export, export:
        at = "SELECT min(start), max(end), {}, '{}', globalTid, 9 FROM NVTX_EVENTS WHERE eventType = 59"
        for kind, text in ((75, "loader"), (59, "fetch")):
            columns = "start, end, eventType, text, globalTid, domainId"
            export.execute(f"INSERT INTO NVTX_EVENTS ({columns}) {at.format(kind, text)}")
    opscope.load(with_domain).save(nsys.folder / "saved.opscope")
    with_domain.unlink()
    nsys.double = not REAL
    return nsys


@pytest.mark.parametrize("line", [old for old, _ in ROWS])
def test_each_line_of_dlprof_runs(full: Bench, line: str) -> None:
    words = shlex.split(line)[1:]
    before = set(full.left())
    if "python" in words:
        done = full.dlprof(*words)
        status, said = done.returncode, done.stderr
    else:
        status, said = full.here(*words)
    assert status == 0, said
    # a program that marks no range leaves nothing to report
    empty = {"--help", "--version", "--nsys_profile_range=true"} & set(words)
    assert bool(empty) != (set(full.left()) > before), said


@pytest.mark.parametrize("line", [new for _, new in ROWS])
def test_each_line_of_opscope_runs(full: Bench, line: str) -> None:
    words = shlex.split(line)[1:]
    done = full.opscope(*words) if words[0] == "run" else command(*words, cwd=full.folder)
    assert done.returncode == 0, done.stderr


def test_the_table_has_every_switch_and_each_of_its_names() -> None:
    assert len(ROWS) > 15
    lines = " ".join(old for old, _ in ROWS)
    for switch in SWITCHES:
        names = [f"--{name}" for name in (switch.name, *switch.aliases)]
        for name in names:
            assert f"`{name}`" in PAGE, name
        letters = [f"-{switch.letter}"] if switch.letter else []
        used = [one for one in (*names, *letters) if re.search(rf" {one}(?![\w-])", lines)]
        assert used, switch.name
        if switch.letter:
            assert f"`-{switch.letter}`" in PAGE


def test_the_reports_of_a_database_are_those_of_opscope_report(full: Bench) -> None:
    status, said = full.here("--database=saved.opscope", "--reports=all", "--output_path=a")
    assert status == 0, said
    words = ("--style", "dlprof", "--reports", "all", "--formats", "csv", "--output-path", "b")
    done = command("report", "saved.opscope", *words, "--base-name", "dlprof", cwd=full.folder)
    assert done.returncode == 0, done.stderr
    assert full.left("a") == full.left("b") != []
    for name in full.left("a"):
        assert (full.folder / "a" / name).read_bytes() == (full.folder / "b" / name).read_bytes()
