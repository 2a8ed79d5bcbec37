"""`opscope run` without a framework: the program is left alone, and all its processes are recorded."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import opscope

ROOT = Path(opscope.__file__).resolve().parents[1]


@pytest.fixture
def script(tmp_path):
    """Writes a script into an empty folder and returns a function that runs opscope there."""

    def write(code: str, name: str = "train.py") -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(code))
        return path

    return write


def cli(cwd: Path, *args: object, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "opscope", *map(str, args)],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def ranges(path: Path, category: str | None = None) -> list[str]:
    frame = opscope.load(path).trace["ranges"].sort("start")
    if category is not None:
        frame = frame.filter(frame["category"].cast(str) == category)
    return frame["text"].cast(str).to_list()


WORK = """
    import sys, opscope
    with opscope.annotate("work"):
        print("out", sys.argv[1:])
        print("err", file=sys.stderr)
"""


def test_a_script_runs_as_without_us_and_its_profile_is_written(script, tmp_path):
    script(WORK)
    done = cli(
        tmp_path, "run", "--no-report", "--", sys.executable, "train.py", "--steps", "3", "-o"
    )
    assert done.returncode == 0
    assert done.stdout == "out ['--steps', '3', '-o']\n"
    backend = r"opscope: backend recorder: .+\n"  # which, and why: that depends on the machine
    assert re.fullmatch(rf"err\n{backend}opscope: wrote train\.opscope\n", done.stderr)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.opscope", "train.py"]
    assert ranges(tmp_path / "train.opscope") == ["work"]


def test_the_wall_time_is_that_of_the_process_from_its_start_to_its_exit(script, tmp_path):
    script("import opscope, zipapp\nwith opscope.annotate('work'):\n    pass")
    before = time.perf_counter_ns()
    cli(tmp_path, "run", "--no-report", "--", sys.executable, "train.py")
    after = time.perf_counter_ns()
    profile = opscope.load(tmp_path / "train.opscope")
    times = profile.trace["process_times"]
    marks = {
        kind: times.filter(times["kind"].cast(str) == kind)
        for kind in ("began", "recorded", "ended")
    }
    began, ended = (marks[kind]["start"].item() for kind in ("began", "ended"))
    recorded = marks["recorded"].row(0, named=True)
    assert before <= began <= recorded["start"] <= recorded["end"] <= ended <= after
    frame = profile.wall_time()
    assert frame["time"].sum() == ended - began
    by_section = dict(frame.select("section", "time").rows())
    assert by_section["before opscope"] == recorded["start"] - began
    assert by_section["after opscope"] == ended - recorded["end"]
    assert "zipapp" in times["name"].to_list()
    assert 0 < by_section["imports"] < recorded["end"] - recorded["start"]


def test_the_report_goes_to_stderr(script, tmp_path):
    script(WORK)
    done = cli(tmp_path, "run", sys.executable, "train.py")
    assert done.stdout == "out []\n"
    assert "Diagnosis" in done.stderr
    assert "Wall time" in done.stderr


def test_a_second_run_has_a_profile_of_its_own_unless_a_name_is_given(script, tmp_path):
    script(WORK)
    command = ("--no-report", "--", sys.executable, "train.py")
    assert cli(tmp_path, "run", *command).returncode == 0
    assert "wrote train-2.opscope" in cli(tmp_path, "run", *command).stderr
    named = ("run", "-o", "mine", *command)
    assert "wrote mine.opscope" in cli(tmp_path, *named).stderr
    before = (tmp_path / "mine.opscope" / "meta.json").read_bytes()
    refused = cli(tmp_path, *named)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "opscope: mine.opscope exists; --force replaces it\n"
    assert (tmp_path / "mine.opscope" / "meta.json").read_bytes() == before
    assert cli(tmp_path, "run", "--force", "-o", "mine", *command).returncode == 0


def test_force_never_removes_what_is_no_profile(script, tmp_path):
    script(WORK)
    (tmp_path / "data.opscope").mkdir()
    (tmp_path / "data.opscope" / "precious").write_text("x")
    done = cli(tmp_path, "run", "-f", "-o", "data", sys.executable, "train.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert (tmp_path / "data.opscope" / "precious").read_text() == "x"


def test_a_crash_keeps_its_own_traceback_and_leaves_a_readable_profile(script, tmp_path):
    script("""
        import opscope
        with opscope.annotate("before the crash"):
            raise ValueError("mine")
    """)
    plain = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    done = cli(tmp_path, "run", "--no-report", sys.executable, "train.py")
    assert done.returncode == plain.returncode == 1
    assert done.stderr.startswith(plain.stderr + "opscope: backend recorder: ")
    assert done.stderr.endswith("\nopscope: wrote train.opscope\n")
    assert ranges(tmp_path / "train.opscope") == ["before the crash"]


@pytest.mark.parametrize("how", ["os._exit(5)", "os.abort()", "os.kill(os.getpid(), 9)"])
def test_a_death_without_farewell_leaves_what_was_on_disk(how, script, tmp_path):
    script(f"""
        import os, time, opscope
        for n in range(4):  # longer than the recorder keeps things to itself
            with opscope.annotate(f"part {{n}}"):
                time.sleep(0.15)
        {how}
    """)
    done = cli(tmp_path, "run", "--no-report", sys.executable, "train.py")
    assert done.returncode == {"os._exit(5)": 5, "os.abort()": 134}.get(how, 137)
    assert "part 0" in ranges(tmp_path / "train.opscope")


def test_a_quick_exit_loses_nothing(script, tmp_path):
    script("""
        import os, opscope
        if not os.fork():
            with opscope.annotate("child"):
                pass
            os._exit(0)
        os.wait()
        with opscope.annotate("parent"):
            pass
        os._exit(5)
    """)
    done = cli(tmp_path, "run", "--no-report", sys.executable, "train.py")
    assert done.returncode == 5
    assert sorted(ranges(tmp_path / "train.opscope")) == ["child", "parent"]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_reaches_the_program_and_the_profile_is_written(name, script, tmp_path):
    script("""
        import time, opscope
        with opscope.annotate("first"):
            pass
        time.sleep(1)
        with opscope.annotate("second"):
            print("ready", flush=True)
            time.sleep(30)
    """)
    process = subprocess.Popen(
        [sys.executable, "-m", "opscope", "run", "--no-report", sys.executable, "train.py"],
        cwd=tmp_path,
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(getattr(signal, name))
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + getattr(signal, name)
    assert ("KeyboardInterrupt" in err) == (name == "SIGINT")
    assert "first" in ranges(tmp_path / "train.opscope")


def test_processes_that_it_starts_are_in_the_same_profile(script, tmp_path):
    script("""
        import multiprocessing, subprocess, sys, opscope

        def work(name):
            with opscope.annotate(name):
                pass

        if __name__ == "__main__":
            work("parent")
            for how in ("fork", "spawn"):
                process = multiprocessing.get_context(how).Process(target=work, args=(how,))
                process.start()
                process.join()
            code = "import opscope\\nwith opscope.annotate('exec'): pass"
            subprocess.run([sys.executable, "-c", code], check=True)
    """)
    done = cli(tmp_path, "run", "--no-report", sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    trace = opscope.load(tmp_path / "train.opscope").trace
    assert sorted(trace["ranges"]["text"].cast(str)) == ["exec", "fork", "parent", "spawn"]
    assert trace["ranges"]["process"].n_unique() == 4
    assert trace["processes"]["pid"].n_unique() == 4


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_workers_that_their_pool_ends_lose_nothing(script, tmp_path, how):
    """``with Pool()`` terminates them as soon as it has their results."""
    script(f"""
        import multiprocessing, opscope

        def work(number):
            with opscope.annotate("task"):
                return number

        if __name__ == "__main__":
            with multiprocessing.get_context("{how}").Pool(2) as pool:
                assert pool.map(work, range(60), chunksize=7) == [*range(60)]
    """)
    done = cli(tmp_path, "run", "--no-report", sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    assert ranges(tmp_path / "train.opscope") == ["task"] * 60


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_workers_of_an_executor_that_are_killed_lose_nothing(script, tmp_path, how):
    script(f"""
        import concurrent.futures, multiprocessing, opscope

        def work(number):
            with opscope.annotate("task"):
                return number

        if __name__ == "__main__":
            context = multiprocessing.get_context("{how}")
            pool = concurrent.futures.ProcessPoolExecutor(2, context)
            assert [*pool.map(work, range(20))] == [*range(20)]
            for worker in pool._processes.values():
                worker.kill()
            pool.shutdown()
    """)
    done = cli(tmp_path, "run", "--no-report", sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    assert ranges(tmp_path / "train.opscope") == ["task"] * 20


def test_a_run_inside_a_run_records_and_the_outer_says_where(script, tmp_path):
    script("import opscope\nwith opscope.annotate('once'): pass")
    inner = (
        sys.executable,
        "-m",
        "opscope",
        "run",
        "--no-report",
        "-o",
        "inner",
        sys.executable,
        "train.py",
    )
    done = cli(tmp_path, "run", "--no-report", "-o", "outer", "--", *inner)
    assert done.returncode == 0, done.stderr
    assert ranges(tmp_path / "inner.opscope") == ["once"]
    said = done.stderr.splitlines()[-1]
    assert said == (
        "opscope: nothing was recorded here: another opscope run inside this one recorded, into"
        f" {tmp_path / 'inner.opscope'}"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inner.opscope", "train.py"]


def test_children_of_a_program_that_is_not_python_are_recorded(script, tmp_path):
    script("import opscope\nwith opscope.annotate('inner'): pass", "inner.py")
    done = cli(
        tmp_path, "run", "--no-report", "-o", "x", "sh", "-c", f"{sys.executable} inner.py; exit 4"
    )
    assert done.returncode == 4
    assert ranges(tmp_path / "x.opscope") == ["inner"]


def test_when_nothing_was_recorded_that_is_said_and_the_status_is_the_program_s(tmp_path):
    done = cli(tmp_path, "run", "sh", "-c", "echo hello; exit 3")
    assert (done.returncode, done.stdout) == (3, "hello\n")
    assert "nothing was recorded" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ((sys.executable, "missing.py"), "No such file"),
        ((sys.executable, "-X", "utf8", "missing.py", "--lr", "1"), "No such file"),
        ((sys.executable, "-m", "no_such_module"), "No module named no_such_module"),
        (("sh", "-c", "no_such_program"), "not found"),
        (("no_such_program",), "command not found"),
    ],
)
def test_a_program_that_is_not_there_is_told_of_once(command, says, tmp_path):
    done = cli(tmp_path, "run", *command)
    assert done.returncode not in (0, None)
    assert says in done.stderr
    assert "nothing was recorded" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("-c", "raise SystemExit(2)"), ("there.py",), ("-m", "there")])
def test_of_a_program_that_ran_it_is_said_that_nothing_was_recorded(command, script, tmp_path):
    script("raise SystemExit(2)", "there.py")
    done = cli(tmp_path, "run", sys.executable, *command)
    assert done.returncode == 2
    assert "nothing was recorded" in done.stderr


STEPS = """
    import opscope
    for n in range(8):
        opscope.step()
        with opscope.annotate(f"work {n}"):
            pass
"""


@pytest.mark.parametrize(
    ("option", "kept"),
    [("3:6", [3, 4, 5]), ("0:2", [0, 1]), ("6:", [6, 7]), (":1", [0]), ("4", [4])],
)
def test_only_the_steps_asked_for_are_recorded(option, kept, script, tmp_path):
    script(STEPS)
    done = cli(tmp_path, "run", "--no-report", "--steps", option, sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    assert ranges(tmp_path / "train.opscope", "step") == [f"step {n}" for n in kept]
    work = [text for text in ranges(tmp_path / "train.opscope") if text.startswith("work")]
    assert work == [f"work {n}" for n in kept]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--steps", "50:"), "no process reached the steps 50:"),
        (
            ("--delay", "3600"),
            "no framework that opscope supports ran in the time of --delay and --duration",
        ),
    ],
)
def test_a_window_that_nothing_fell_into_is_said(options, why, script, tmp_path):
    script(STEPS)
    done = cli(tmp_path, "run", *options, sys.executable, "train.py")
    assert done.returncode == 0
    assert f"nothing was recorded: {why}" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--steps", "6:3"), "not a range of steps: '6:3'"),
        (("--steps", "x"), "not a range of steps"),
        (
            ("--steps", "1:2", "--delay", "1"),
            "--steps cannot be combined with --delay or --duration",
        ),
        (("--backend", "magic"), "no backend named 'magic'"),
        (("-o", "nowhere/x"), "nowhere: no such folder"),
        (("-o", ""), "is not a file name"),
        (("-o", "/"), "is not a file name"),
        (("--backend", "kineto"), "no GPU is visible"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_runs(
    options, complaint, tmp_path, monkeypatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = cli(tmp_path, "run", *options, "--", "sh", "-c", "echo ran")
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that lies")
def test_a_folder_that_turns_out_to_take_nothing_is_told_before_anything_runs(tmp_path):
    done = cli(tmp_path, "run", "-o", "/proc/self/x", "--", "sh", "-c", "echo ran")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("opscope: /proc/self: cannot write to this folder")
    assert len(done.stderr.splitlines()) == 1


def test_a_command_that_does_not_exist(tmp_path):
    done = cli(tmp_path, "run", "no-such-program-here")
    assert (done.returncode, done.stderr) == (
        127,
        "opscope: no-such-program-here: command not found\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_python_without_opscope_is_named_with_the_reason(script, tmp_path):
    (tmp_path / "block").mkdir()
    (tmp_path / "block" / "sitecustomize.py").write_text(
        "import sys; sys.modules['opscope'] = None"
    )
    code = f"import os; os.environ['PYTHONPATH'] += os.pathsep + {str(tmp_path / 'block')!r}"
    script(
        f"{code}\nimport subprocess, sys\nsys.exit(subprocess.call([sys.executable, '-c', 'print(1)']))"
    )
    done = cli(tmp_path, "run", sys.executable, "train.py")
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert f"not recorded: {sys.executable}: this Python cannot import opscope" in done.stderr


def test_secrets_on_the_command_line_do_not_reach_the_profile(script, tmp_path):
    script(WORK)
    done = cli(tmp_path, "run", "--no-report", sys.executable, "train.py", "--api-key=s3cr3t-value")
    assert done.returncode == 0
    for path in (tmp_path / "train.opscope").rglob("*"):
        assert b"s3cr3t-value" not in path.read_bytes()


def test_one_process_s_damaged_part_costs_only_itself(script, tmp_path):
    script("""
        import glob, os, subprocess, sys, opscope
        with opscope.annotate("whole"):
            pass
        code = "import opscope\\nwith opscope.annotate('damaged'): pass"
        subprocess.run([sys.executable, "-c", code], check=True)
        parts = glob.glob(os.environ["OPSCOPE_RUN_DIR"] + "/part-*")
        (part,) = [part for part in parts if f"-{os.getpid()}-" not in part]
        open(part + "/strings.jsonl", "w").write("nonsense\\n")
    """)
    done = cli(tmp_path, "run", "--no-report", sys.executable, "train.py")
    assert done.returncode == 0
    assert "opscope: left out: part-" in done.stderr
    assert ranges(tmp_path / "train.opscope") == ["whole"]
    notes = opscope.load(tmp_path / "train.opscope").notes()["what"]
    assert any("left out" in note for note in notes)
