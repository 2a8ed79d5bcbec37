"""Where the commands read and write: odd names, pipes, full disks, closed streams, several files."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import opscope

ROOT = str(Path(opscope.__file__).resolve().parents[1])
COMMANDS = [("report",), ("report", "--json"), ("ops", "--csv"), ("kernels",), ("doctor",)]


def cli(*args: str, **options) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-m", "opscope", *args],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
        **options,
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is full")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_one_line(command, saved):
    with open("/dev/full", "w") as full:
        done = cli(command[0], saved, *command[1:], stdout=full)
    assert done.returncode == 2
    assert done.stderr == "opscope: cannot write to stdout: No space left on device\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_has_gone_is_no_error(command, saved):
    reader, writer = os.pipe()
    os.close(reader)
    done = cli(command[0], saved, *command[1:], stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.name == "nt", reason="a shell's way of closing a stream")
def test_a_closed_stdout_is_said_and_a_closed_stderr_hinders_nothing(saved):
    call = f'"{sys.executable}" -m opscope report {saved}'
    done = cli_shell(f"{call} >&-")
    assert (done.returncode, done.stderr) == (2, "opscope: stdout is closed\n")
    done = cli_shell(f"{call} --formats json 2>&-")
    assert done.returncode == 0
    assert json.loads(Path("run_summary.json").read_text())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is full")
@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full", "2>/dev/full >&-"])
def test_where_nobody_can_be_told_the_status_is_the_programs(where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        "import opscope, sys\nwith opscope.annotate('work'):\n    sys.exit(3)\n"
    )
    assert cli_shell(f'"{sys.executable}" -m opscope run train.py {where}').returncode == 3
    assert Path("train.opscope", "meta.json").is_file()


def cli_shell(line: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        line, shell=True, env=env, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.skipif(sys.platform != "linux", reason="names that are not UTF-8")
def test_names_that_are_not_utf_8(saved, tmp_path):
    name = os.fsdecode(b"odd\xff name")
    shutil.copytree(saved, f"{name}.opscope")
    want = cli("report", saved, "--json", "--full", stdout=subprocess.PIPE).stdout
    full = cli("report", f"{name}.opscope", "--json", "--full", stdout=subprocess.PIPE)
    assert full.stdout == want
    small = json.loads(cli("report", f"{name}.opscope", "--json", stdout=subprocess.PIPE).stdout)
    assert any("advise" in line and "odd" in line for line in small["next"])
    program = ["import opscope", "with opscope.annotate('work'): pass"]
    done = cli("run", "-o", f"new {name}", "--", sys.executable, "-c", "\n".join(program))
    assert done.returncode == 0, done.stderr
    assert cli("report", f"new {name}.opscope").returncode == 0
    with sqlite3.connect("other.sqlite") as base:
        base.execute("create table cats (name text)")
    base.close()
    os.rename("other.sqlite", f"{name}.sqlite")
    done = cli("report", f"{name}.sqlite")
    assert done.returncode == 2
    assert done.stderr.endswith("or AMD's profilers (its tables: cats)\n")


@pytest.mark.skipif(os.name == "nt", reason="names that Windows has not")
def test_a_name_is_no_pattern(saved, tmp_path):
    shutil.copytree(saved, "run[1].opscope")
    shutil.copytree(saved, "run*.opscope")
    full = ("--json", "--full")
    want = cli("report", saved, *full, stdout=subprocess.PIPE).stdout
    assert cli("report", "run[1].opscope", *full, stdout=subprocess.PIPE).stdout == want
    assert cli("report", "run*.opscope", *full, stdout=subprocess.PIPE).stdout == want


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_is_refused_and_passed_over_in_a_folder(saved, tmp_path):
    os.mkfifo("pipe")
    done = cli("report", "pipe")
    assert done.returncode == 2
    assert done.stderr.startswith("opscope: pipe: a pipe or a device")
    done = cli("ops", ".", "--json", stdout=subprocess.PIPE)  # the profile beside the pipe
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(
        cli("ops", saved, "--json", stdout=subprocess.PIPE).stdout
    )


def test_one_profile_given_twice_and_its_copy_are_refused(saved):
    shutil.copytree(saved, "other.opscope")
    for again, why in ((f"./{saved}", "given twice"), ("other.opscope", "it would count twice")):
        done = cli("report", saved, again, stdout=subprocess.PIPE)
        assert done.returncode == 2
        assert why in done.stderr
        assert not done.stdout
