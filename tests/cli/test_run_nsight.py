"""`opscope run` around and under Nsight Systems, which a script of that name stands in for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opscope.cli import nsight
from tests.nvtx_tool import ROOT, build

#: Does what nsys does to a program: its environment, its own process around it, its report at the end.
STAND_IN = """#!{python}
import os, subprocess, sys
words = sys.argv[1:]
if words[0] == "export":
    sys.exit("not here")
at = words.index("-o")
program = words[at + 2:]
env = {{**os.environ, "NSYS_PROFILING_SESSION_ID": "1", "QUADD_INJECTION_PROXY": "NVTX"}}
env["NVTX_INJECTION64_PATH"] = {tool!r}
status = subprocess.call(program, env=env)
open(words[at + 1].removesuffix(".nsys-rep") + ".nsys-rep", "w").write(" ".join(words[:at]))
print("Generated:")
sys.exit(status)
"""
WORK = """
import sys, opscope
with opscope.annotate("work"):
    print("out")
sys.exit(3)
"""


@pytest.fixture(scope="session")
def nsys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nsys")
    tool = build(folder)
    path = folder / "nsys"
    path.write_text(STAND_IN.format(python=sys.executable, tool=str(tool)))
    path.chmod(0o755)
    return path


def run(folder: Path, nsys: Path, *words: object) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(WORK)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("NVTX_", "NSYS_", "QUADD_"))}
    env |= {"PYTHONPATH": str(ROOT), "PATH": f"{nsys.parent}{os.pathsep}{os.environ['PATH']}"}
    env["OPSCOPE_TEST_NVTX_LOG"] = str(folder / "nvtx.log")
    command = [str(word) for word in words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


OPSCOPE = (sys.executable, "-m", "opscope", "run", "--no-report")
PROGRAM = (sys.executable, "train.py")


@pytest.mark.parametrize("name", ["x", "x.nsys-rep", "deep/../x"])
@pytest.mark.parametrize("inside", [True, False])
def test_the_last_line_names_the_report(
    nsys: Path, tmp_path: Path, name: str, inside: bool
) -> None:
    (tmp_path / "deep").mkdir()
    profile = (nsys, "profile", "-t", "nvtx", "-o", name)
    command = (
        (*OPSCOPE, "--", *profile, *PROGRAM) if inside else (*profile, *OPSCOPE, "--", *PROGRAM)
    )
    done = run(tmp_path, nsys, *command)
    assert done.returncode == 3
    last = done.stderr.splitlines()[-1]
    assert last.startswith("opscope: Nsight Systems writes the ranges to")
    assert Path(last.split("opscope report ")[1]).resolve() == (tmp_path / "x.nsys-rep").resolve()
    assert "nothing was recorded" not in done.stderr
    assert "no NVTX tool was attached" not in done.stderr
    assert not list(tmp_path.glob("*.opscope"))
    assert b"work".hex() in (tmp_path / "nvtx.log").read_text()


def test_a_report_that_nsys_names_itself_is_not_guessed(nsys: Path, tmp_path: Path) -> None:
    done = run(tmp_path, nsys, nsys, "profile", "-o", "%h-%p", *OPSCOPE, "--", *PROGRAM)
    assert "opscope report NAME.nsys-rep" in done.stderr.splitlines()[-1]


def test_emit_that_no_tool_hears_is_said(tmp_path: Path) -> None:
    done = run(tmp_path, tmp_path / "nsys", *OPSCOPE, "--backend", "emit", "--", *PROGRAM)
    assert done.returncode == 3
    assert "no NVTX tool was attached to it" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["nsys", "profile", "-o", "a", "python"], "a"),
        (["nsys", "profile", "-oa"], "a"),
        (["nsys", "profile", "--output=a"], "a"),
        (["nsys", "profile", "--output", "a"], "a"),
        (["nsys", "profile", "-t", "nvtx"], None),
        (["nsys", "profile", "-o"], None),
    ],
)
def test_the_name_of_nsys_report_in_its_command(words: list[str], name: str | None) -> None:
    assert nsight._output(words) == name
