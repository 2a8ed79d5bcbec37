"""`opscope run --backend nsys` with a stand-in for nsys that answers as the real versions do."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import opscope
from tests.nvtx_tool import ROOT, build

V2020, V2022, V2023, V2024, NEWER = (
    "2020.4.3.7-10543b6",
    "2022.4.2.1-df9881f",
    "2023.4.4.54-234433681190v0",
    "2024.2.3.38-242334140272v0",
    "2031.1.0.1",
)
ALL = [V2020, V2022, V2023, V2024, NEWER]
TRAIN = """
import sys, opscope
for n in range(6):
    opscope.step(n)
    with opscope.annotate(f"work {n}"):
        pass
opscope.shutdown()
print("out", sys.stdin.read())
print("err", file=sys.stderr)
sys.exit(3)
"""
#: Runs opscope as on a machine with an NVIDIA GPU.
WITH_GPU = """
import sys
from opscope.backends import machine
machine._vendor = lambda root: "nvidia"
from opscope.cli import main
main()
"""


@dataclass
class Bench:
    """A folder with a program and an ``nsys`` on PATH."""

    folder: Path
    tool: Path
    env: dict[str, str] = field(default_factory=dict)

    def install(self, version: str, place: str = "bin") -> None:
        path = self.folder / place / "nsys"
        path.parent.mkdir(parents=True, exist_ok=True)
        script = ROOT / "tests" / "fake_nsys.py"
        line = f'exec "{sys.executable}" -I "{script}" "{version}" "$@"'
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def environ(self, **more: str) -> dict[str, str]:
        hidden = ("NVTX_", "NSYS_", "QUADD_", "FAKE_NSYS", "OPSCOPE_", "OMPI_", "PMI")
        env = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        env |= {"PYTHONPATH": str(ROOT), "PATH": path, "FAKE_NSYS_TOOL": str(self.tool)}
        return {**env, "CUDA_VISIBLE_DEVICES": "0", **self.env, **more}

    def command(self, *words: object, program: str | None = TRAIN, gpu: bool = False) -> list[str]:
        if program is not None:
            (self.folder / "train.py").write_text(program)
        begin = ["-c", WITH_GPU] if gpu else ["-m", "opscope"]
        return [sys.executable, *begin, "run", "--no-report", *map(str, words)]

    def run(
        self, *words: object, program: str | None = TRAIN, gpu: bool = False, **more: str
    ) -> subprocess.CompletedProcess[str]:
        end = () if "--" in words else ("--", sys.executable, "train.py")
        return subprocess.run(
            self.command(*words, *end, program=program, gpu=gpu),
            cwd=self.folder,
            env=self.environ(**more),
            input="in",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    @property
    def asked(self) -> dict[str, str]:
        return json.loads((self.folder / "asked.json").read_text())

    def texts(self, name: str = "x.opscope") -> list[str]:
        ranges = opscope.load(self.folder / name).trace["ranges"]
        return [
            t for t in ranges["text"].cast(str).to_list() if t and t.startswith(("work", "step"))
        ]

    def left(self) -> list[str]:
        """The files beside the program, hidden ones included: nothing half-written may be among them."""
        ours = ("bin", "train.py", "asked.json", "nsys-ended", "over", "opt")
        return sorted(p.name for p in self.folder.iterdir() if p.name not in ours)


@pytest.fixture(scope="session")
def injection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("injection"), "-DOPSCOPE_REFUSE")


@pytest.fixture
def bench(tmp_path: Path, injection: Path) -> Bench:
    made = Bench(tmp_path, injection)
    made.install(V2023)
    return made


NSYS = ("--backend", "nsys", "-o", "x")


# ------------------------------------------------------------------ what the user gets


@pytest.mark.parametrize("version", ALL)
def test_every_version_gives_a_profile_beside_its_report(bench: Bench, version: str) -> None:
    bench.install(version)
    done = bench.run(*NSYS)
    assert (done.returncode, done.stdout, done.stderr.count("err\n")) == (3, "out in\n", 1)
    suffix = ".qdrep" if version == V2020 else ".nsys-rep"
    assert bench.left() == sorted([f"x{suffix}", "x.opscope"])
    assert f"Nsight Systems wrote x{suffix}" in done.stderr
    assert "wrote x.opscope" in done.stderr
    assert bench.texts().count("work 3") == 1
    assert len([t for t in bench.texts() if t.startswith("step")]) == 6
    origin = opscope.load(bench.folder / "x.opscope").trace.origin
    assert origin["backends"][0] | {"processes": 1} == {
        "backend": "nsys", "reason": "requested", "processes": 1, "version": version,
    }  # fmt: skip
    assert origin["command"] == [sys.executable, "train.py"]


def test_what_nsys_prints_is_not_in_the_output_of_the_program(bench: Bench) -> None:
    done = bench.run(*NSYS)
    assert done.stdout == "out in\n"
    assert "Generated" not in done.stderr
    assert "[1/1]" not in done.stderr


def test_kernels_of_the_report_belong_to_the_ranges_that_launched_them(bench: Bench) -> None:
    done = bench.run(*NSYS, gpu=True, FAKE_NSYS_KERNELS="work")
    assert done.returncode == 3, done.stderr
    kernels = opscope.load(bench.folder / "x.opscope").kernels()
    assert kernels["range"].cast(str).to_list() == [f"work {n}" for n in range(6)]
    # the last step was left open, so it does not count
    assert kernels["step"].to_list() == [0, 1, 2, 3, 4, None]


def test_the_environment_of_the_program_is_in_no_file_of_the_profile(bench: Bench) -> None:
    done = bench.run(*NSYS, MY_TOKEN="hunter2-of-the-user")
    assert done.returncode == 3
    assert "hunter2-of-the-user" in (bench.folder / "x.nsys-rep").read_text()  # the stand-in has it
    import polars as pl

    for path in (bench.folder / "x.opscope").iterdir():
        text = path.read_text() if path.suffix == ".json" else str(pl.read_parquet(path).rows())
        assert "hunter2" not in text
        assert "MY_TOKEN" not in text


def test_a_private_run_leaves_no_report(bench: Bench) -> None:
    done = bench.run(*NSYS, "--private")
    assert done.returncode == 3
    assert bench.left() == ["x.opscope"]
    assert "x.nsys-rep" not in done.stderr


def test_a_private_run_keeps_the_report_where_it_is_all_there_is(bench: Bench) -> None:
    done = bench.run(*NSYS, "--private", FAKE_NSYS_FAULT="export")
    assert done.returncode == 3
    assert bench.left() == ["x.nsys-rep"]


def test_simple_mode_is_recorded_with_its_ranges_and_without_the_time_of_the_command(
    bench: Bench,
) -> None:
    done = bench.run(*NSYS, "--mode", "simple")
    assert done.returncode == 3
    assert "simple mode recorded: 5 steps; 6 ranges" in done.stderr
    assert "the time of the command" not in done.stderr
    assert "no NVTX tool was attached" not in done.stderr
    assert bench.texts().count("work 3") == 1


def test_names_that_are_taken_are_not_written_over(bench: Bench) -> None:
    (bench.folder / "x.nsys-rep").write_text("mine")
    done = bench.run(*NSYS)
    assert (bench.folder / "x.nsys-rep").read_text() == "mine"
    assert bench.left() == ["x-2.nsys-rep", "x.nsys-rep", "x.opscope"]
    assert "x-2.nsys-rep" in done.stderr
    again = bench.run(*NSYS)
    assert (again.returncode, again.stdout) == (2, "")
    assert "exists; --force replaces it" in again.stderr
    assert bench.run(*NSYS, "--force").returncode == 3
    assert (bench.folder / "x.nsys-rep").read_text() != "mine"


# ------------------------------------------------------------------ the command line


def test_the_command_line_asks_for_what_a_profile_needs(bench: Bench) -> None:
    bench.run(*NSYS)
    assert bench.asked["trace"] == "cuda,nvtx"
    assert bench.asked | {"output": ""} == {
        "trace": "cuda,nvtx", "sample": "none", "cpuctxsw": "none", "kill": "none", "wait": "primary",
        "cuda-graph-trace": "node", "trace-fork-before-exec": "true", "force-overwrite": "true",
        "output": "",
    }  # fmt: skip
    bench.run(*NSYS, "-f", "--cuda-graph-trace", "graph")
    assert bench.asked["cuda-graph-trace"] == "graph"


def test_options_that_a_version_lacks_are_left_out_and_newer_ones_are_used(bench: Bench) -> None:
    bench.install(V2020)
    bench.run(*NSYS)
    assert "cuda-graph-trace" not in bench.asked
    bench.install(NEWER)
    bench.run(*NSYS, "-f")
    assert bench.asked["cuda-event-trace"] == "false"
    assert bench.asked["discard-environment"] == "true"


def test_more_sets_are_traced_where_the_version_has_them(bench: Bench) -> None:
    bench.run(*NSYS, "--trace", "osrt,cublas,cudnn,mpi", OMPI_COMM_WORLD_RANK="0")
    assert bench.asked["trace"] == "cuda,nvtx,osrt,cublas,cudnn,mpi"
    assert bench.asked["mpi-impl"] == "openmpi"
    bench.install(NEWER)
    assert bench.run(*NSYS, "-f", "--trace", "warp-drive").returncode == 3
    bench.install(V2020)
    refused = bench.run(*NSYS, "-f", "--trace", "ucx")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--trace ucx: Nsight Systems 2020.4.3.7-10543b6 knows only: " in refused.stderr


@pytest.mark.parametrize(
    "words", [("--trace", "cuda;rm"), ("--capture-range-end", "stop-shutdown")]
)
def test_what_would_harm_the_program_is_refused(bench: Bench, words: tuple[str, ...]) -> None:
    done = bench.run(*NSYS, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert words[0] in done.stderr


def test_options_of_nsys_need_nsys(bench: Bench) -> None:
    done = bench.run("--backend", "recorder", "-o", "x", "--trace", "osrt")
    assert done.returncode == 2
    assert "are for --backend nsys" in done.stderr


def test_delay_and_duration_are_options_of_nsys(bench: Bench) -> None:
    (bench.folder / "over").touch()
    bench.run(*NSYS, "--delay", "2.5", "--duration", "4")
    assert (bench.asked["delay"], bench.asked["duration"]) == ("2.5", "4")
    bench.install(V2022)
    done = bench.run(*NSYS, "-f", "--delay", "2.5")
    assert bench.asked["delay"] == "3"
    assert "--delay 2.5 is taken for 3" in done.stderr


def test_patterns_in_the_name_give_every_rank_a_file(bench: Bench) -> None:
    bench.env["RANK"] = "1"
    done = bench.run("--backend", "nsys", "-o", "x-%q{RANK}-of%%", program=TRAIN)
    assert done.returncode == 3
    assert bench.left() == ["x-1-of%.nsys-rep", "x-1-of%.opscope"]
    missing = bench.run("--backend", "nsys", "-o", "x-%q{NOWHERE}")
    assert missing.returncode == 2
    assert "no variable NOWHERE" in missing.stderr


def test_processes_that_a_launcher_starts_are_in_one_profile(bench: Bench) -> None:
    launcher = (
        "import subprocess, sys, os\n"
        "for rank in '01':\n"
        "    env = {**os.environ, 'RANK': rank, 'WORLD_SIZE': '2'}\n"
        "    subprocess.run([sys.executable, 'rank.py'], env=env, check=True)\n"
    )
    (bench.folder / "rank.py").write_text(TRAIN.replace("sys.exit(3)", ""))
    done = bench.run(*NSYS, program=launcher)
    assert done.returncode == 0, done.stderr
    processes = opscope.load(bench.folder / "x.opscope").trace["processes"].drop_nulls("rank")
    assert sorted(processes.select("rank", "world_size").rows()) == [(0, 2), (1, 2)]


# ------------------------------------------------------------------ parts of a run


@pytest.mark.parametrize("version", ALL)
def test_steps_are_a_range_that_the_program_marks(bench: Bench, version: str) -> None:
    bench.install(version)
    done = bench.run(*NSYS, "--steps", "2:4")
    assert done.returncode == 3, done.stderr
    assert bench.asked["capture-range"] == "nvtx"
    assert bench.asked["nvtx-capture"] == "capture@opscope.capture"
    if version == V2020:
        assert bench.asked["stop-on-range-end"] == "true"
    else:
        assert bench.asked["capture-range-end"] == "stop"
    assert bench.texts() == ["step 2", "work 2", "step 3", "work 3"]
    profile = opscope.load(bench.folder / "x.opscope")
    assert profile.summary()["steps"].item() == 2
    # it says who it is although its first mark was before the range
    assert '"python"' in profile.trace["processes"]["versions"][0]


@pytest.fixture(scope="session")
def cudart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (gcc or cc) to build the stand-in for libcudart")
    path = tmp_path_factory.mktemp("cudart") / "libcudart.so.12"
    source = ROOT / "tests" / "nsys_stand_in" / "cudart.c"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wall", str(source), "-o", str(path)], check=True
    )
    return path


def test_with_a_gpu_the_range_is_that_of_cudas_profiler(bench: Bench, cudart: Path) -> None:
    program = f"import ctypes\nctypes.CDLL({str(cudart)!r})\n{TRAIN}"
    done = bench.run(*NSYS, "--steps", "2:4", program=program, gpu=True)
    assert done.returncode == 3, done.stderr
    assert bench.asked["capture-range"] == "cudaProfilerApi"
    assert bench.texts() == ["step 2", "work 2", "step 3", "work 3"]


def test_a_program_without_cuda_is_told_that_its_steps_could_not_be_recorded(bench: Bench) -> None:
    done = bench.run(*NSYS, "--steps", "2:4", gpu=True)
    assert (done.returncode, done.stdout) == (3, "out in\n")
    assert "CUDA is not in this process" in done.stderr
    assert bench.left() == []


def test_steps_that_no_process_reaches_are_told(bench: Bench) -> None:
    done = bench.run(*NSYS, "--steps", "50:60")
    assert done.returncode == 3
    assert "no process reached the steps 50:60" in done.stderr
    assert bench.left() == []


CALLBACK = """
import opscope
from opscope.callbacks.stepping import Stepping
loop = Stepping("own.opscope", start=1, stop=2, repeat=3)
loop.begin()
for n in range(6):
    loop.step_begins()
    with opscope.annotate(f"work {n}"):
        pass
    loop.step_ends()
loop.end()
"""


@pytest.mark.parametrize(
    ("end", "windows"),
    [("stop", [["1"]]), ("repeat", [["1"], ["3"], ["5"]]), ("repeat:2", [["1"], ["3"]])],
)
def test_callbacks_say_what_is_recorded(bench: Bench, end: str, windows: list[list[str]]) -> None:
    done = bench.run(*NSYS, "--capture-range-end", end, program=CALLBACK)
    assert done.returncode == 0, done.stderr
    assert bench.asked["capture-range-end"] == end
    names = ["x" if not n else f"x-{n}" for n in range(len(windows))]
    assert bench.left() == sorted(f"{name}{s}" for name in names for s in (".nsys-rep", ".opscope"))
    for name, steps in zip(names, windows, strict=True):
        both = [f"{word} {n}" for n in steps for word in ("step", "work")]
        assert bench.texts(f"{name}.opscope") == both


def test_captures_of_the_program_say_what_is_recorded(bench: Bench) -> None:
    program = (
        "import opscope\nfor n in range(3):\n    with opscope.annotate(f'work out {n}'): pass\n"
        "    with opscope.capture(f'own{n}.opscope'):\n        with opscope.annotate(f'work {n}'): pass\n"
    )
    done = bench.run(*NSYS, "--capture-range-end", "repeat", program=program)
    assert done.returncode == 0, done.stderr
    assert [bench.texts(f"x{n}.opscope") for n in ("", "-1", "-2")] == [
        ["work 0"], ["work 1"], ["work 2"],
    ]  # fmt: skip


def test_a_version_that_records_one_range_refuses_to_repeat(bench: Bench) -> None:
    bench.install(V2020)
    done = bench.run(*NSYS, "--capture-range-end", "repeat", program=CALLBACK)
    assert (done.returncode, done.stdout) == (2, "")
    assert "records one range only; 2021.2 and later repeat" in done.stderr


LONG = """
import os, sys, time
open("over", "w").close()                  # now nsys's --duration is over
while not os.path.exists("nsys-ended"):
    time.sleep(0.02)
print("still here", flush=True)
sys.exit(5)
"""


def test_a_program_outlives_the_duration_and_its_status_is_waited_for(bench: Bench) -> None:
    done = bench.run(
        *NSYS,
        "--duration",
        "1",
        program="import opscope\nwith opscope.annotate('work'): pass\n" + LONG,
    )
    assert (done.returncode, done.stdout) == (5, "still here\n")
    assert bench.texts() == ["work"]


def test_a_program_that_ends_before_the_delay_is_told_of(bench: Bench) -> None:
    done = bench.run(*NSYS, "--delay", "5", FAKE_NSYS_EARLY="1")
    assert done.returncode == 3
    assert "nothing was recorded: the program ended within the 5 s of --delay" in done.stderr
    assert bench.left() == []


# ------------------------------------------------------------------ the program is its user's


def test_a_program_that_dies_by_a_signal_has_its_status_and_a_profile(bench: Bench) -> None:
    program = "import os, opscope\nwith opscope.annotate('work'): pass\nos.kill(os.getpid(), 9)\n"
    done = bench.run(*NSYS, program=program)
    assert done.returncode == 137
    assert bench.texts() == ["work"]


SIGNALLED = """
import signal, sys, time
def got(number, frame):
    print("got", signal.Signals(number).name, flush=True)
    if number != signal.SIGUSR1:
        sys.exit(40 + number)
for name in ("SIGINT", "SIGTERM", "SIGUSR1"):
    signal.signal(getattr(signal, name), got)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_sent_to_opscope_reach_the_program(bench: Bench, number: signal.Signals) -> None:
    command = bench.command(*NSYS, "--", sys.executable, "train.py", program=SIGNALLED)
    with subprocess.Popen(
        command, cwd=bench.folder, env=bench.environ(), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as run:  # fmt: skip
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
        run.send_signal(signal.SIGUSR1)
        assert run.stdout.readline() == "got SIGUSR1\n"
        run.send_signal(number)
        out, err = run.communicate(timeout=60)
    assert out == f"got {number.name}\n"
    assert run.returncode == 40 + number, err


def test_a_key_at_the_terminal_reaches_the_program_and_not_nsys(bench: Bench) -> None:
    command = bench.command(*NSYS, "--", sys.executable, "train.py", program=SIGNALLED)
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(bench.folder)
        os.execve(command[0], command, bench.environ())
    seen = b""
    deadline = time.monotonic() + 60
    while b"ready" not in seen and time.monotonic() < deadline:
        seen += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    while True:
        try:
            more = os.read(terminal, 4096)
        except OSError:  # the terminal's other side is closed
            break
        if not more:
            break
        seen += more
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 40 + signal.SIGINT, seen.decode()
    assert seen.count(b"got SIGINT") == 1
    assert b"x.nsys-rep" in seen


def test_the_program_sees_the_terminal_and_no_file_of_opscope(bench: Bench) -> None:
    program = (
        "import os, sys; print(sys.stdin.isatty(), sys.stdout.isatty(), sys.stderr.isatty())\n"
    )
    program += "import signal\nprint(signal.getsignal(signal.SIGPIPE).name, signal.getsignal(signal.SIGTERM).name)\n"
    program += "print(max(map(int, os.listdir('/proc/self/fd'))) < 200)\n"
    command = bench.command(*NSYS, "--", sys.executable, "train.py", program=program)
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(bench.folder)
        os.execve(command[0], command, bench.environ())
    seen = b""
    while True:
        try:
            more = os.read(terminal, 4096)
        except OSError:
            break
        if not more:
            break
        seen += more
    os.waitpid(pid, 0)
    assert b"True True True\r\n" in seen
    assert b"SIG_IGN SIG_DFL\r\n" in seen  # Python itself ignores SIGPIPE, whatever it inherits
    assert b"True\r\n" in seen.split(b"SIG_DFL\r\n")[1][:6]


def test_a_program_that_is_not_there_is_told_as_a_shell_does(bench: Bench) -> None:
    done = bench.run(*NSYS, "--", "./nowhere")
    assert done.returncode == 127
    assert "./nowhere: command not found" in done.stderr
    assert bench.left() == []


def test_a_program_that_marks_nothing_leaves_the_report_alone(bench: Bench) -> None:
    done = bench.run(*NSYS, "--", "sh", "-c", "exit 7")
    assert done.returncode == 7
    assert bench.left() == ["x.nsys-rep"]
    assert "has no range and no kernel, so no profile was made" in done.stderr


# ------------------------------------------------------------------ failures


def test_without_nsys_it_is_said_what_to_do(bench: Bench) -> None:
    shutil.rmtree(bench.folder / "bin")
    done = bench.run(*NSYS)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--backend nsys: nsys is not on PATH" in done.stderr


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (
            "NVIDIA Nsight Systems version 2019.5.2.16-b54ef97",
            "is too old: opscope needs 2020.1 or later",
        ),
        ("something else", "does not name a version of Nsight Systems: 'something else'"),
    ],
)
def test_an_nsys_that_cannot_be_used_is_refused_before_the_run(
    bench: Bench, says: str, why: str
) -> None:
    done = bench.run(*NSYS, FAKE_NSYS_SAYS=says)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr


def test_an_nsys_that_does_not_run_is_refused_with_its_own_words(bench: Bench) -> None:
    done = bench.run(*NSYS, FAKE_NSYS_FAULT="broken")
    assert (done.returncode, done.stdout) == (2, "")
    assert "libfoo.so.1" in done.stderr


def test_an_unknown_version_without_help_is_taken_for_the_nearest_and_that_is_said(
    bench: Bench,
) -> None:
    done = bench.run(
        *NSYS, FAKE_NSYS_FAULT="help", FAKE_NSYS_SAYS="NVIDIA Nsight Systems version 2022.3.1.9"
    )
    assert done.returncode == 3, done.stderr
    assert (
        "2022.3.1.9 is unknown to opscope and its help cannot be read: it is taken for 2021.4"
        in done.stderr
    )
    assert "cuda-graph-trace" not in bench.asked


@pytest.mark.parametrize(
    ("fault", "why"), [("tmp", "Invalid truncate size"), ("permission", "perf_event_paranoid is 4")]
)
def test_an_nsys_that_fails_before_the_program_says_why_and_runs_nothing(
    bench: Bench, fault: str, why: str
) -> None:
    done = bench.run(*NSYS, FAKE_NSYS_FAULT=fault)
    assert done.stdout == ""
    assert done.returncode not in (0, 3)
    assert "did not start the program" in done.stderr
    assert why in done.stderr
    assert bench.left() == []


def test_with_auto_the_program_then_runs_without_nsys(bench: Bench) -> None:
    done = bench.run("-o", "x", gpu=True, FAKE_NSYS_FAULT="tmp")
    assert (done.returncode, done.stdout) == (3, "out in\n")
    assert "the program runs without Nsight Systems" in done.stderr
    assert bench.left() == ["x.opscope"]
    assert "work 3" in bench.texts()


def test_auto_is_nsys_where_there_is_a_gpu(bench: Bench) -> None:
    done = bench.run("-o", "x", gpu=True)
    assert done.returncode == 3, done.stderr
    assert bench.left() == ["x.nsys-rep", "x.opscope"]
    assert "a GPU is visible, and nsys is installed" in done.stderr
    reason = opscope.load(bench.folder / "x.opscope").trace.origin["backends"][0]["reason"]
    assert reason.startswith("a GPU is visible, and nsys is installed")


def test_auto_without_a_gpu_is_not_nsys(bench: Bench) -> None:
    done = bench.run("-o", "x")
    assert done.returncode == 3
    assert bench.left() == ["x.opscope"]
    assert not (bench.folder / "asked.json").exists()


def test_a_warning_of_nsys_is_passed_on(bench: Bench) -> None:
    done = bench.run(*NSYS, FAKE_NSYS_FAULT="warning")
    assert done.returncode == 3
    assert done.stdout == "out in\n"
    assert "Nsight Systems: WARNING: The Linux kernel is older than recommended." in done.stderr
    assert bench.left() == ["x.nsys-rep", "x.opscope"]


def test_raw_events_that_cannot_be_imported_are_kept_with_advice(bench: Bench) -> None:
    done = bench.run(*NSYS, FAKE_NSYS_FAULT="import")
    assert done.returncode == 3
    assert bench.left() == ["x.qdstrm"]
    assert "Importer error status" in done.stderr
    assert "QdstrmImporter -i x.qdstrm" in done.stderr


def test_a_full_disk_leaves_what_was_recorded_where_nsys_put_it(bench: Bench) -> None:
    done = bench.run(*NSYS, FAKE_NSYS_FAULT="full")
    assert done.returncode == 3
    assert "No space left on device" in done.stderr
    assert "its data is in x.qdstrm" in done.stderr
    assert bench.left() == ["x.qdstrm"]


@pytest.mark.parametrize("fault", ["export", "export-nothing", "export-junk"])
def test_an_export_that_fails_leaves_the_report_and_no_profile(bench: Bench, fault: str) -> None:
    done = bench.run(*NSYS, FAKE_NSYS_FAULT=fault)
    assert done.returncode == 3
    assert bench.left() == ["x.nsys-rep"]
    assert "no profile was made of x.nsys-rep" in done.stderr
    if fault == "export":
        assert "Exportation error: Cannot read from stream." in done.stderr


def test_an_nsys_that_dies_does_not_end_the_program(bench: Bench) -> None:
    # the starter of the program gets another parent when nsys is gone
    program = "import os, time\ndef above():\n"
    program += (
        "    return open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1]\n"
    )
    program += "before = above()\nopen('over', 'w').close()\n"
    program += "while above() == before: time.sleep(0.02)\n"
    done = bench.run(*NSYS, program=program + TRAIN, FAKE_NSYS_FAULT="dies")
    assert (done.returncode, done.stdout) == (3, "out in\n")
    assert "nothing was recorded: nsys wrote no report" in done.stderr
    assert bench.left() == []


def test_a_run_inside_nsys_is_refused(bench: Bench) -> None:
    done = bench.run(*NSYS, NSYS_PROFILING_SESSION_ID="7")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Nsight Systems" in done.stderr


# ------------------------------------------------------------------ before the run


def test_the_silent_trap_of_nvtx_is_told_before_the_run(bench: Bench) -> None:
    done = bench.run(*NSYS, program="import os\nos.write(2, b'-- begins\\n')\n" + TRAIN)
    before, _, after = done.stderr.partition("-- begins")
    assert "ranges that the program makes with the package nvtx itself are not recorded" in before
    assert "the package nvtx itself" not in after
    # 2020.4 has no such trap; this stand-in has it in every version, which is then seen in the program
    bench.install(V2020)
    done = bench.run(*NSYS, "-f", program="import os\nos.write(2, b'-- begins\\n')\n" + TRAIN)
    before, _, after = done.stderr.partition("-- begins")
    assert "the package nvtx itself" not in before
    assert "ranges that the program makes with the package nvtx itself are not recorded" in after


def test_nvtx_that_is_disabled_is_told_before_the_run(bench: Bench) -> None:
    done = bench.run(*NSYS, NVTX_DISABLE="1")
    assert done.returncode == 3
    assert "NVTX_DISABLE is set: no range is recorded" in done.stderr
