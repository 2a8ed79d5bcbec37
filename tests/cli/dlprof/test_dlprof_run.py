"""`opscope dlprof COMMAND`: what nsys is asked for by each switch, what is written, and the program's own status."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

import opscope
from opscope.cli import common, program_end
from tests.dlprof_bench import V2020, V2022, Bench
from tests.nvtx_tool import ROOT

TRAIN = ("python", "train.py")
#: What nsys is always asked for.
ALWAYS = {
    "trace": "cuda,nvtx", "sample": "none", "cpuctxsw": "none", "kill": "none", "wait": "primary",
    "cuda-graph-trace": "node", "trace-fork-before-exec": "true", "force-overwrite": "true",
}  # fmt: skip


def asked(bench: Bench) -> dict[str, str]:
    """What nsys was asked for beside what it is always asked for."""
    found = dict(bench.asked)
    found.pop("output")
    return {name: value for name, value in found.items() if ALWAYS.get(name) != value}


# ------------------------------------------------------------------ the command line of nsys


def test_nsys_records_wherever_it_is(nsys: Bench) -> None:
    done = nsys.dlprof(*TRAIN)
    assert (done.returncode, done.stdout) == (3, "out\n")
    assert nsys.left() == ["dlprof.opscope", "nsys_profile.nsys-rep"]
    assert asked(nsys) == {}
    assert ALWAYS.items() <= nsys.asked.items()
    assert opscope.load(nsys.folder / "dlprof.opscope").trace.origin["backends"][0]["backend"] == (
        "nsys"
    )


#: A run each: switches, and what nsys is asked for because of them.
RUNS = [
    ("--delay=2 --mode=tensorrt --duration=0 --nsys_profile_range=false", {"delay": "2"}),
    ("-d=30 -y 1 -m tensorflow1 -b true", {"delay": "1", "duration": "30"}),
    (
        "--nsys_profile_range=true --mode=pytorch --detailed_mode=true --graphdef=auto",
        {"capture-range": "cudaProfilerApi", "capture-range-end": "stop"},
    ),
    ("--nsys_opts='-t cuda,nvtx -s none' --key_op=A --iter_start=1 --iter_stop=2 --domains=a", {}),
    ("--nsys_options='-t osrt,cudnn -s cpu'", {"trace": "cuda,nvtx,osrt,cudnn", "sample": "cpu"}),
    (
        "--formats=json --nsys_opts -t osrt --gpuctxsw=true --cuda-graph-trace graph -o mine",
        {"trace": "cuda,nvtx,osrt", "gpuctxsw": "true", "cuda-graph-trace": "graph"},
    ),
    ("--nsys_opts='-d 20 -f true --export=sqlite --stats=true' -y1", {"delay": "1", "duration": "20"}),
    (
        "--nsys_opts='-c cudaProfilerApi --capture-range-end=repeat:2'",
        {"capture-range": "cudaProfilerApi", "capture-range-end": "repeat:2"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("switches", "options"), RUNS)
def test_each_switch_asks_nsys_for_what_it_means(
    nsys: Bench, switches: str, options: dict[str, str]
) -> None:
    (nsys.folder / "over").touch()  # the time of --duration
    done = nsys.dlprof(*shlex.split(switches), "--", *TRAIN, gpu=True)
    assert done.returncode == 3, done.stderr
    assert asked(nsys) == options


def test_an_nsys_of_2020_has_other_words_for_a_range(nsys: Bench) -> None:
    done = nsys.nsys(V2020).dlprof("--nsys_profile_range=true", "--output_path=new", *TRAIN)
    assert nsys.asked["stop-on-range-end"] == "true"
    assert nsys.asked["capture-range"] == "cudaProfilerApi"
    assert "capture-range-end" not in nsys.asked
    assert "the program called no cudaProfilerStart that Nsight Systems heard" in done.stderr
    assert nsys.left() == []


def test_names_of_what_is_written(nsys: Bench) -> None:
    done = nsys.dlprof(
        "--nsys_base_name=mine", "--output_path=a/b", "--profile_name=run", "--base_name=r",
        "--reports", "summary", "kernel", "--formats=csv,json", "--dump_model_data=true", "--", *TRAIN,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert nsys.left("a/b") == [
        "mine.nsys-rep", "r_kernel.csv", "r_kernel.json", "r_model_data.json", "r_summary.csv",
        "r_summary.json", "run.opscope",
    ]  # fmt: skip
    assert nsys.left() == ["a"]


def test_an_older_nsys_keeps_its_own_suffix(nsys: Bench) -> None:
    nsys.nsys(V2020).dlprof("--nsys_base_output_filename=old", *TRAIN)
    assert nsys.left() == ["dlprof.opscope", "old.qdrep"]


def test_what_nsys_refuses_ends_the_command_before_the_program_runs(nsys: Bench) -> None:
    done = nsys.dlprof("--nsys_opts=--no-such=1", "--output_path=new", "touch", "ran")
    assert (done.returncode, done.stdout) == (2, "")
    assert "unrecognised option '--no-such=1'" in done.stderr
    done = nsys.nsys(V2022).dlprof("--nsys_opts=-t python-gil", "--output_path=new", "touch", "ran")
    assert done.returncode == 2
    assert "--trace python-gil: Nsight Systems 2022.4.2.1-df9881f knows only" in done.stderr
    assert nsys.left() == []  # no folder either


def test_a_broken_nsys_is_not_used_and_the_program_is_recorded(nsys: Bench) -> None:
    done = nsys.dlprof("--reports=summary", *TRAIN, FAKE_NSYS_FAULT="broken")
    assert done.returncode == 3
    assert "Nsight Systems is not used" in done.stderr
    assert nsys.left() == ["dlprof.opscope", "dlprof_summary.csv"]


# ------------------------------------------------------------------ without nsys


def test_without_nsys_opscope_records_and_says_so_in_one_line(bench: Bench) -> None:
    done = bench.dlprof("--reports=all", *TRAIN)
    assert (done.returncode, done.stdout) == (3, "out\n")
    told = [line for line in done.stderr.splitlines() if "nsys" in line]
    assert told == ["opscope: nsys is not on PATH, so opscope records by itself"]
    assert len(bench.left()) == 9
    assert opscope.load(bench.folder / "dlprof.opscope").trace["ranges"].height


def test_what_nsys_alone_can_do_is_told(bench: Bench) -> None:
    done = bench.dlprof(
        "--nsys_opts=-t osrt", "--nsys_base_name=n", "--nsys_profile_range=true", *TRAIN
    )
    assert done.returncode == 3
    for name in ("nsys_opts", "nsys_base_name", "nsys_profile_range"):
        assert f"opscope: --{name}: no effect: " in done.stderr
    assert bench.left() == ["dlprof.opscope"]


def test_a_part_of_the_run_is_recorded_without_nsys_too(bench: Bench) -> None:
    done = bench.dlprof("--delay=1000", "--reports=summary", *TRAIN)
    assert done.returncode == 3
    assert "in the time of --delay and --duration" in done.stderr
    assert "there is no profile, so no report was written" in done.stderr
    assert bench.left() == []


#: Works until it is ended; its child would outlive it.
ENDLESS = """
import subprocess, sys, time, opscope
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
opscope.step(0)
print("begun", flush=True)
while True:
    with opscope.annotate("work"):
        time.sleep(0.01)
"""


def running_in(folder: Path) -> list[str]:
    """The processes whose folder this is."""
    there = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(process / "cwd") == str(folder):
                there.append(process.name)
    return there


@pytest.mark.parametrize("by_nsys", [False, True])
def test_the_time_of_duration_ends_the_program_and_all_it_started(
    bench: Bench, injection: Path, by_nsys: bool
) -> None:
    (bench.folder / "train.py").write_text(ENDLESS)
    if by_nsys:
        Bench(bench.folder, injection).nsys()
        (bench.folder / "train.py").write_text(ENDLESS)
        (bench.folder / "over").touch()
    # time enough to begin on a busy machine
    done = bench.dlprof("--duration=6", "--reports=summary", *TRAIN)
    assert (done.returncode, done.stdout) == (143, "begun\n"), done.stderr
    assert (
        "the time of --duration is over: SIGTERM ended the program, whose status is 143"
        in done.stderr
    )
    assert ("nsys_profile.nsys-rep" if by_nsys else "dlprof_summary.csv") in bench.left()
    assert running_in(bench.folder) == []


def test_a_program_that_handles_the_signal_has_its_own_status(bench: Bench) -> None:
    (bench.folder / "train.py").write_text(
        "import signal, sys, time\nimport opscope\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "opscope.step(0)\nwhile True:\n    time.sleep(0.01)\n"
    )
    assert bench.dlprof("-d", "6", *TRAIN).returncode == 5


#: Ignores the signal, and so does what it starts when it gets it.
STUBBORN = """
import signal, subprocess, time, opscope
opscope.step(0)
signal.signal(signal.SIGTERM, lambda *_: subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 1000; :"]))
print("begun", flush=True)
while True:
    with opscope.annotate("work"):
        time.sleep(0.01)
"""


def test_what_ignores_the_signal_is_killed_with_all_it_starts_meanwhile(bench: Bench) -> None:
    (bench.folder / "train.py").write_text(STUBBORN)
    done = bench.dlprof("--duration=5", "--reports=summary", *TRAIN)
    assert (done.returncode, done.stdout) == (137, "begun\n"), done.stderr
    assert "what had not ended 10 s after SIGTERM was killed" in done.stderr
    assert running_in(bench.folder) == []


def test_a_process_that_became_another_program_records_no_more(tmp_path: Path) -> None:
    code = (
        "import os, sys; from opscope.cli.program_end import hold; hold(sys.argv[1])\n"
        "print('held', flush=True); input(); os.execvp('sleep', ['sleep', '1000'])"
    )
    words = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(words, stdin=-1, stdout=-1, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout.readline() == "held\n"
            assert program_end._writing(tmp_path)
            print(file=process.stdin, flush=True)
            while process.poll() is None and not is_sleep(process.pid):
                time.sleep(0.01)
            assert process.poll() is None
            assert not program_end._writing(tmp_path)
        finally:
            process.kill()


def is_sleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep")


def test_a_program_that_ends_before_is_left_alone_and_run_ends_none(bench: Bench) -> None:
    done = bench.dlprof("--duration=100", *TRAIN)
    assert (done.returncode, done.stdout) == (3, "out\n")
    assert "SIGTERM" not in done.stderr
    (bench.folder / "train.py").write_text("import time\ntime.sleep(2)\nprint('out')")
    done = bench.opscope("run", "--duration", "0.2", "--", *TRAIN)
    assert (done.returncode, done.stdout) == (0, "out\n")


def test_the_mode_reaches_the_program(bench: Bench) -> None:
    script = "import os; print(os.environ['OPSCOPE_MODE'])"
    done = bench.dlprof("-m", "tensorflow1", "--", "python", "-c", script)
    assert done.stdout == "tensorflow1\n"


# ------------------------------------------------------------------ the program and its files


@pytest.mark.parametrize("status", [0, 7])
def test_the_status_of_the_program_is_kept_whatever_becomes_of_the_reports(
    bench: Bench, status: int
) -> None:
    (bench.folder / "train.py").write_text(
        f"import opscope, sys\nopscope.step(0)\nopscope.step(1)\nsys.exit({status})"
    )
    done = bench.dlprof("--reports=summary", "--key_op=NO_SUCH_OP", *TRAIN)
    assert done.returncode == status
    assert "no op named 'NO_SUCH_OP'; the profile is there" in done.stderr
    assert "opscope dlprof --database=dlprof.opscope" in done.stderr
    assert bench.left() == ["dlprof.opscope"]


def test_a_command_that_is_not_there_is_told_as_a_shell_does(bench: Bench) -> None:
    done = bench.dlprof("--reports=all", "--output_path=new", "no-such-program")
    assert done.returncode == 127
    assert "no-such-program: command not found" in done.stderr
    assert bench.left() == []


@pytest.mark.parametrize("name", ["dlprof_summary.csv", "dlprof_summary_mine.csv"])
def test_a_report_that_exists_stops_the_command_before_the_program_runs(
    bench: Bench, name: str
) -> None:
    (bench.folder / name).write_text("old")
    status, told = bench.here("--reports=summary", "touch", "ran")
    assert status == 2
    assert f"{name} exists; --force=true replaces it" in told
    assert bench.left() == [name]


def test_the_second_profile_has_a_number_unless_it_replaces_the_first(bench: Bench) -> None:
    for _ in range(2):
        assert bench.dlprof(*TRAIN).returncode == 3
    assert bench.left() == ["dlprof-2.opscope", "dlprof.opscope"]
    (bench.folder / "dlprof_kernel.csv").write_text("old")
    assert bench.dlprof("-f", "true", "--reports=kernel", *TRAIN).returncode == 3
    assert bench.left() == ["dlprof-2.opscope", "dlprof.opscope", "dlprof_kernel.csv"]
    assert "old" not in (bench.folder / "dlprof_kernel.csv").read_text()


def test_a_folder_that_is_no_profile_is_never_replaced(bench: Bench) -> None:
    (bench.folder / "dlprof.opscope").mkdir()
    (bench.folder / "dlprof.opscope" / "mine.txt").touch()
    status, told = bench.here("--force=true", "touch", "ran")
    assert status == 2
    assert "is not a profile, so --force does not replace it" in told
    assert bench.left() == ["dlprof.opscope"]


def test_the_switches_reach_the_reports(bench: Bench) -> None:
    done = bench.dlprof(
        "--report=kernel", "--file_formats", "json", "--key_node=CONV2D_1", "--iter_start=3",
        "--iter_stop", "7", "--domains=one,two", *TRAIN,
    )  # fmt: skip
    assert done.returncode == 3
    assert bench.left() == [
        "dlprof.opscope", "dlprof_kernel_one.json", "dlprof_kernel_two.json",
    ]  # fmt: skip
    told = json.loads((bench.folder / "dlprof_kernel_one.json").read_text())
    assert told == {"key": "CONV2D_1", "start": 3, "stop": 7, "kernels": 0}


def test_the_data_of_the_model_is_each_op_with_its_kernels(nsys: Bench) -> None:
    done = nsys.dlprof("--dump_model_data=true", *TRAIN, FAKE_NSYS_KERNELS="work")
    assert done.returncode == 3, done.stderr
    data = json.loads((nsys.folder / "dlprof_model_data.json").read_text())
    profile = opscope.load(nsys.folder / "dlprof.opscope")
    assert set(data) == {"ops", "kernels", "memops"}
    assert data["memops"] == []
    assert [one["op"] for one in data["kernels"]] == [f"work {n}" for n in range(4)]
    assert [one["op_id"] for one in data["ops"]] == profile.ops()["op_id"].to_list()


# ------------------------------------------------------------------ what is printed


def test_levels_of_verbosity_print_more_and_more(nsys: Bench) -> None:
    lines = {}
    for level in ("quiet", "minimal", "normal", "verbose", "diagnostic"):
        done = nsys.dlprof("-f", "true", "-v", level, "--reports=summary", *TRAIN, gpu=True)
        assert (done.returncode, done.stdout) == (3, "out\n")
        lines[level] = [one for one in done.stderr.splitlines() if one != "err"]
    assert lines["quiet"] == []
    assert lines["minimal"] == [
        "opscope: wrote dlprof.opscope", "opscope: wrote dlprof_summary.csv",
    ]  # fmt: skip
    assert set(lines["minimal"]) < set(lines["normal"])
    assert not any("Where the time went" in one for one in lines["normal"])
    for level in ("verbose", "diagnostic"):
        assert any("Where the time went" in one for one in lines[level])
    commands = [one for one in lines["diagnostic"] if "nsys profile --trace=cuda,nvtx" in one]
    assert len(commands) == 1
    assert "opscope: nsys: Generated:" in lines["diagnostic"]
    assert not any("nsys profile" in one for one in lines["verbose"])


def test_a_quiet_run_tells_what_failed(bench: Bench) -> None:
    done = bench.dlprof("-v", "quiet", "--delay=1000", *TRAIN)
    assert "nothing was recorded" in done.stderr
    done = bench.dlprof("-v", "quiet", "--reports=kernel", "--key_op=NO_SUCH_OP", *TRAIN)
    assert [one for one in done.stderr.splitlines() if one != "err"] == [
        "opscope: no op named 'NO_SUCH_OP'; the profile is there, so the reports can be made by: "
        "opscope dlprof --database=dlprof.opscope"
    ]


def test_the_simple_mode_prints_its_first_screen_as_dlprof_did(bench: Bench) -> None:
    assert "Wall time" in bench.dlprof("--mode=simple", *TRAIN).stderr


def test_switches_without_use_are_told_and_the_program_runs(bench: Bench) -> None:
    done = bench.dlprof("--tb_dir=x", "--suppress_tb_files=true", "--graphdef=auto", *TRAIN)
    assert done.returncode == 3
    for name in ("tb_dir", "suppress_tb_files", "graphdef"):
        assert f"opscope: --{name}: opscope " in done.stderr
    assert bench.left() == ["dlprof.opscope"]


def test_a_switch_that_does_not_exist_gets_a_suggestion(bench: Bench) -> None:
    status, told = bench.here("--repots=all", "touch", "ran")
    assert status == 2
    assert "no switch --repots; did you mean --reports?" in told
    assert bench.left() == []


def test_help_and_version(bench: Bench) -> None:
    for words in (["--help"], ["-h"], ["--mode=simple", "-h"]):
        status, told = bench.here(*words)
        assert status == 0
        assert "-y, --delay=SECONDS" in told
    status, told = bench.here()
    assert status == 2
    assert "--database" in told
    assert bench.here("-V")[1].startswith(f"opscope {opscope.__version__}")


def test_opscope_run_keeps_its_own_grammar(bench: Bench) -> None:
    done = bench.opscope("run", "--reports=all", "--", *TRAIN)
    assert done.returncode == 2
    assert "No such option" in done.stderr


def test_lines_that_are_held_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with common.held() as lines:
        common.say("one")
        with common.held(False) as none:
            common.say("two")
    common.say("three")
    assert (lines, none) == (["one", "two"], [])
    assert capsys.readouterr().err == "opscope: three\n"
