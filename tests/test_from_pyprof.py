"""docs/from-pyprof.md: each command line in its tables runs as it stands; its columns are all."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from opscope.core.pyprof.table import COLUMNS, DEFAULT
from tests.command import opscope
from tests.test_docs import ROOT, environment

PAGE = ROOT / "docs" / "from-pyprof.md"
#: Lines that record a program of the reader's: the tests of ``opscope run`` have them.
_PROGRAMS = "opscope run"


def rows() -> list[list[str]]:
    """The cells of the page's tables."""
    if not PAGE.exists():
        return []
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in lines
        if line.startswith("|")
    ]


def commands() -> list[str]:
    """The command lines of the right columns."""
    found = [
        line for cells in rows() if len(cells) == 2 for line in re.findall(r"`([^`]*)`", cells[1])
    ]
    return [
        line
        for line in found
        if re.match(r"(?:opscope (?!run)|cat )", line) and not line.startswith(_PROGRAMS)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with ``net.sqlite``, as nvprof writes it with PyProf's ranges."""
    place = tmp_path_factory.mktemp("pyprof")
    spec = importlib.util.spec_from_file_location("make_nvprof", ROOT / "benchmarks/make_nvprof.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.make(place / "net.sqlite", 40)
    made = opscope("kernels", "net.sqlite", "--style", "pyprof", "--dict", cwd=place)
    (place / "net.dict").write_text(made.stdout)
    return place


@pytest.mark.parametrize("line", commands())
def test_a_command_of_the_page_runs(line, folder):
    if set(line) & set("<|>"):
        done = subprocess.run(
            ["bash", "-ec", f"set -o pipefail; {line}"],
            cwd=folder, env=environment(folder), capture_output=True, text=True, check=False,
        )  # fmt: skip
    else:
        done = opscope(*shlex.split(line)[1:], cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    if line.endswith("> net.dict"):
        assert len((folder / "net.dict").read_text().splitlines()) == 40
        return
    assert done.stdout
    if "--style pyprof" in line and "awk" not in line and "--json" not in line:
        assert len(done.stdout.splitlines()) == (11 if "--top" in line else 41)


def test_the_page_has_a_line_for_each_command_of_pyprof():
    """As PyProf's own documentation lists them: each form of output, each way to name the input."""
    lines = commands()
    assert len(lines) >= 12
    for flag in (
        "-w 150",
        "--csv",
        "-w 130 -c",
        "--csv -c",
        "-c all",
        "< net",
        "- --style",
        "--help",
        "awk",
    ):
        assert any(flag in line for line in lines), flag


def test_the_page_tells_of_every_column():
    told = {name for cells in rows() for name in re.findall(r"`(\w+)`", cells[0])}
    assert set(COLUMNS) <= told
    assert f"`{','.join(DEFAULT)}`" in PAGE.read_text(encoding="utf-8")
