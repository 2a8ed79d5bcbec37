"""`opscope run --mode`: simple mode records any program; the other modes restrict what is observed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope import backends
from opscope.adapters import modes
from opscope.backends import Availability
from opscope.cli import run_settings, simple
from opscope.core.tables.trace import Trace
from tests.nvtx_tool import ROOT

FRAMEWORK = ROOT / "tests" / "made_framework"

TRAIN = """
    import threading, opscope
    def work():
        with opscope.annotate("load"):
            pass
    for number in range(3):
        opscope.step()
        work()
    opscope.step()
    thread = threading.Thread(target=work, name="loader")
    thread.start()
    thread.join()
"""


def cli(folder: Path, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(FRAMEWORK))), **more}
    command = [sys.executable, "-m", "opscope", *map(str, words)]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def train(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAIN))
    return tmp_path


def test_steps_ranges_threads_and_the_time_of_the_command_are_recorded(train: Path) -> None:
    done = cli(train, "run", "--mode", "simple", "--no-report", "--", sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[2:] == [
        "opscope: simple mode recorded: the time of the command; 3 steps; 4 ranges",
        "opscope: not recorded: ops: simple mode observes no framework; GPU kernels: no GPU is visible here",
    ]
    profile = opscope.load(train / "train.opscope")
    row = profile.summary().row(0, named=True)
    assert (row["steps"], row["processes"], row["kernels"]) == (3, 1, None)
    ranges = profile.trace["ranges"]
    whole = ranges.filter(pl.col("domain").cast(pl.String) == simple.DOMAIN)
    assert row["wall_time"] == (whole["end"] - whole["start"]).item()
    inside = ranges.filter(pl.col("domain").cast(pl.String) != simple.DOMAIN)
    assert whole["start"].item() < inside["start"].min()
    assert inside["end"].max() < whole["end"].item()
    names = profile.trace["threads"]["name"].cast(pl.String).to_list()
    assert sorted(names) == ["MainThread", "loader", "whole command"]
    assert profile.ops()["op"].unique().to_list() == ["load"]  # the command is no op
    meta = json.loads((train / "train.opscope" / "meta.json").read_text())
    assert meta["origin"]["mode"] == "simple"


def test_a_private_run_names_no_host_and_no_arguments(train: Path) -> None:
    words = (
        "run",
        "--mode",
        "simple",
        "--private",
        "--no-report",
        "--",
        sys.executable,
        "train.py",
    )
    done = cli(train, *words, "secret-argument")
    assert done.returncode == 0, done.stderr
    profile = opscope.load(train / "train.opscope")
    assert len(profile.trace["processes"]) == 1
    assert profile.summary()["steps"].item() == 3
    for path in (train / "train.opscope").rglob("*"):
        if path.is_file():
            for word in (b"secret-argument", socket.gethostname().encode()):
                assert word not in path.read_bytes(), path


def test_a_program_that_is_not_python_has_its_time_and_its_exit_status(tmp_path: Path) -> None:
    done = cli(tmp_path, "run", "--mode", "simple", "-o", "x", "--", "sh", "-c", "exit 3")
    assert done.returncode == 3
    assert "opscope: simple mode recorded: the time of the command\n" in done.stderr
    assert "GPU kernels: no GPU is visible here" in done.stderr
    profile = opscope.load(tmp_path / "x.opscope")
    row = profile.summary().row(0, named=True)
    assert row["wall_time"] > 0
    # what nobody recorded is unknown, and never 0
    assert {
        row[name] for name in ("kernel_time", "device_busy", "tensor_core_time", "kernels")
    } == {None}
    assert profile.trace["processes"]["name"].to_list() == ["sh"]


def test_a_compiled_program_has_its_time(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "a.c").write_text("int main(void) { return 0; }\n")
    subprocess.run([compiler, "-o", "a.out", "a.c"], cwd=tmp_path, check=True)
    done = cli(tmp_path, "run", "--mode", "simple", "--no-report", "--", "./a.out")
    assert done.returncode == 0, done.stderr
    assert opscope.load(tmp_path / "a.opscope").summary()["wall_time"].item() > 0


def test_a_command_that_never_ran_has_no_profile(tmp_path: Path) -> None:
    done = cli(tmp_path, "run", "--mode", "simple", "--", "no-such-program")
    assert done.returncode == 127
    assert list(tmp_path.iterdir()) == []


def test_with_delay_only_what_fell_into_it_is_recorded(train: Path) -> None:
    done = cli(train, "run", "--mode", "simple", "--delay", "600", "--", sys.executable, "train.py")
    assert done.returncode == 0
    assert "no step and no range of the program was in the time of --delay" in done.stderr
    assert not (train / "train.opscope").exists()


ABACUS = """
    import opscope, abacus
    from opscope import adapters
    opscope.init()
    {more}
    with opscope.capture("inner.opscope"):
        abacus.add(abacus.Array([1.0]), abacus.Array([2.0]))
    print(adapters.installed())
"""


@pytest.mark.parametrize(
    ("mode", "installed"), [("simple", "()"), ("auto", "('abacus',)"), ("abacus", "('abacus',)"), ("torch", "()")]
)  # fmt: skip
def test_a_mode_restricts_the_adapters_whatever_the_program_calls(
    tmp_path: Path, mode: str, installed: str
) -> None:
    """``init()`` and ``capture()`` of the program do not bring back what the mode excludes."""
    with_adapter(tmp_path)
    (tmp_path / "train.py").write_text(textwrap.dedent(ABACUS.format(more="")))
    python = os.pathsep.join(map(str, (ROOT, FRAMEWORK, tmp_path)))
    words = ("run", "--mode", mode, "--no-report", "--", sys.executable, "train.py")
    done = cli(tmp_path, *words, PYTHONPATH=python)
    assert done.stdout == f"{installed}\n", done.stderr


def test_what_the_program_asks_for_beyond_the_mode_is_said_and_left_out(tmp_path: Path) -> None:
    with_adapter(tmp_path)
    more = "opscope.init('abacus'); opscope.init(['abacus'])"
    (tmp_path / "train.py").write_text(textwrap.dedent(ABACUS.format(more=more)))
    python = os.pathsep.join(map(str, (ROOT, FRAMEWORK, tmp_path)))
    words = ("run", "--mode", "simple", "--no-report", "--", sys.executable, "train.py")
    done = cli(tmp_path, *words, PYTHONPATH=python)
    assert done.stdout == "()\n", done.stderr
    assert done.stderr.count("opscope: abacus is not observed: opscope run --mode simple") == 1


def with_adapter(folder: Path) -> None:
    """Install the template's adapter, of the made-up framework, by its entry point alone."""
    information = folder / "opscope_abacus-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: opscope-abacus\nVersion: 1.0\n"
    )
    (information / "entry_points.txt").write_text(
        "[opscope.adapters]\nabacus = opscope.adapters.template:AbacusAdapter\n"
    )


def test_a_mode_that_does_not_exist_is_refused_before_the_program_runs(tmp_path: Path) -> None:
    done = cli(tmp_path, "run", "--mode", "Simpel", "--", "sh", "-c", "echo ran")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no mode 'Simpel'; did you mean 'simple'?" in done.stderr


def test_a_wrong_mode_in_the_environment_does_not_reach_the_program(tmp_path: Path) -> None:
    program = "import opscope; opscope.init(); print('went on')"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OPSCOPE_MODE": "simpel"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "went on\n")
    assert "OPSCOPE_MODE is ignored: no mode 'simpel'" in done.stderr


def test_dlprof_s_modes_are_known_by_its_names() -> None:
    assert modes.frameworks("auto") is None
    assert modes.frameworks("simple") == ()
    torch = ("torch", "keras", "transformers")
    assert modes.frameworks("pytorch") == modes.frameworks("torch") == torch
    assert modes.frameworks("tensorflow2") == ("tensorflow", "keras")
    for mode in modes.names()[2:]:
        assert modes.frameworks(mode), mode


# ------------------------------------------------------------------------------- with a GPU


@pytest.mark.parametrize(
    ("mode", "backend", "inside", "found"),
    [
        ("simple", "auto", False, "nsys"),
        ("simple", "auto", True, "auto"),  # what only a recording in the process has
        ("simple", "recorder", False, "recorder"),
        ("auto", "auto", False, "nsys"),
    ],
)
def test_nsight_systems_records_the_kernels_where_it_is_and_there_is_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    mode: str,
    backend: str,
    inside: bool,
    found: str,
) -> None:
    (tmp_path / "nsys").write_text("#!/bin/sh\n")
    (tmp_path / "nsys").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("opscope.backends.choice.gpu_vendor", lambda *_: "nvidia")
    assert run_settings.backend_of(backend, mode, inside) == found


def test_without_a_tool_for_any_program_it_is_said_that_kernels_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the CPU's time does not stand in for the GPU's."""
    found = {"nsys": Availability(False, "not on PATH"), "cupti": Availability(False, "no library")}
    monkeypatch.setattr(
        backends, "ranked", lambda _: [(name, None, one) for name, one in found.items()]
    )
    trace = Trace.of({"notes": pl.DataFrame()}, {})
    _, missing = simple.tell(trace, "nvidia")
    assert (
        "GPU kernels: nothing that records those of any program is here (nsys: not on PATH; cupti: no library)"
        in missing
    )
    found["cupti"] = Availability(True, "it is there")
    assert "opscope doctor says what records" in simple.tell(trace, "nvidia")[1]
    assert trace.used_gpu
    assert not simple.tell(Trace.of({"notes": pl.DataFrame()}, {}), None)[1].endswith("GPU")
    with_kernels = Trace.of(
        {"kernels": pl.DataFrame({"process": [0], "start": [0], "end": [1]})}, {}
    )
    recorded, missing = simple.tell(with_kernels, "nvidia")
    assert "1 kernel" in recorded
    assert "kernels" not in missing
