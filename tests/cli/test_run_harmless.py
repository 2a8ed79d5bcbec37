"""A disk that is full, a folder that goes away, an impatient user: the program's outcome is its own."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import opscope
from opscope.backends import recording_folder
from opscope.readers.recording.reader import collect

ROOT = Path(opscope.__file__).resolve().parents[1]
MANY = """
    import sys, opscope
    for n in range({many}):
        with opscope.annotate(f"work {{n}}"):
            pass
    print("out")
    sys.exit({status})
"""


@pytest.fixture
def script(tmp_path):
    def write(code: str, name: str = "train.py") -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(code))
        return path

    return write


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


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


def texts(path: Path) -> list[str]:
    return opscope.load(path).trace["ranges"].sort("start")["text"].cast(str).to_list()


def recording_in(folder: Path) -> Path:
    (found,) = folder.glob(".*.opscope-*")
    return found


def no_more_files_than(number: int):
    """The process to be started, and what it starts, may have so many open at once."""
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))


def test_too_many_open_files_are_told_with_the_way_out(script, tmp_path):
    script(MANY.format(many=1, status=3))
    done = cli(tmp_path, "run", sys.executable, "train.py", preexec_fn=no_more_files_than(6))
    assert (done.returncode, done.stdout) == (3, "out\n"), done.stderr
    assert "Traceback" not in done.stderr
    assert "Too many open files (raise the limit: ulimit -n)" in done.stderr


def test_a_run_that_can_write_nothing_says_that_and_no_other_reason(script, tmp_path):
    script(MANY.format(many=1, status=3))
    done = cli(tmp_path, "run", sys.executable, "train.py", preexec_fn=no_more_than(0))
    assert (done.returncode, done.stdout) == (3, "out\n")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"opscope: nothing was recorded: {tmp_path}: File too large (raise")
    assert not [*tmp_path.glob(".*")]


def no_more_than(size: int):
    """Files of the process to be started end there, as on a disk that is full."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize("status", [0, 3])
def test_a_disk_that_is_full_while_the_profile_is_written_costs_no_recording(
    status, script, tmp_path
):
    script(MANY.format(many=1, status=status))
    done = cli(tmp_path, "run", sys.executable, "train.py", preexec_fn=no_more_than(3_000))
    assert (done.returncode, done.stdout) == (status, "out\n")
    (line,) = done.stderr.splitlines()
    assert re.fullmatch(
        r"opscope: train\.opscope was not written: File too large \(.+\); what was recorded is kept: "
        r"opscope report \S+",
        line,
    )
    left = recording_in(tmp_path)
    assert line.endswith(str(left))
    assert collect(left)["ranges"]["text"].cast(str).to_list() == ["work 0"]
    assert not (tmp_path / "train.opscope").exists()


def test_a_disk_that_is_full_while_the_program_runs_is_told_and_what_came_before_is_kept(
    script, tmp_path
):
    script(MANY.format(many=5_000, status=3))
    done = cli(
        tmp_path, "run", "--no-report", sys.executable, "train.py", preexec_fn=no_more_than(60_000)
    )
    assert (done.returncode, done.stdout) == (3, "out\n")
    assert "Traceback" not in done.stderr
    assert done.stderr.count("ends here, what follows is not recorded: File too large") == 1
    kept_texts = texts(tmp_path / "train.opscope")
    assert kept_texts == [f"work {n}" for n in range(len(kept_texts))]


def test_a_folder_that_the_program_removes_takes_the_recording_with_it_and_nothing_else(
    script, tmp_path
):
    (tmp_path / "out").mkdir()
    script("""
        import shutil, opscope
        with opscope.annotate("work"):
            pass
        shutil.rmtree("out")
        with opscope.annotate("more"):
            pass
    """)
    done = cli(tmp_path, "run", "-o", "out/x", sys.executable, "train.py")
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert (
        f"nothing was recorded: the recording in {tmp_path / 'out'} was deleted during the run"
        in done.stderr
    )
    assert not (tmp_path / "out").exists(), "what the program removed stays removed"


SLOW = """
    import sys, time
    import opscope.cli.collected as run
    from opscope.cli import main
    original = run._readable
    def slow(parts):
        print("making", flush=True)
        time.sleep(60)
        return original(parts)
    run._readable = slow
    sys.argv[0] = "opscope"
    main()
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_a_signal_while_the_profile_is_made_leaves_the_recording_and_says_how_to_open_it(
    name, script, tmp_path
):
    script(MANY.format(many=3, status=4))
    script(SLOW, "slow.py")
    process = subprocess.Popen(
        [sys.executable, "slow.py", "run", "-o", "x", sys.executable, "train.py"],
        cwd=tmp_path,
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # whatever runs the tests
    )
    assert [process.stdout.readline() for _ in range(2)] == ["out\n", "making\n"]
    process.send_signal(getattr(signal, name))
    _, err = process.communicate(timeout=50)
    left = recording_in(tmp_path)
    if name == "SIGKILL":
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 4, "the program's own"
        assert err == (
            f"opscope: {name} while the profile was written; what was recorded is kept: "
            f"opscope report {left}\n"
        )
    assert len(collect(left)["ranges"]) == 3


@pytest.mark.parametrize("options", [(), ("-o", "mine")])
def test_of_two_runs_at_once_the_later_has_a_number(options, script, tmp_path):
    script(f"""
        import os, subprocess, sys, opscope
        with opscope.annotate("outer"):
            pass
        if "inner" not in sys.argv:
            command = [sys.executable, "-m", "opscope", "run", "--no-report", *{list(options)!r}]
            subprocess.run([*command, sys.executable, "train.py", "inner"], check=True)
    """)
    done = cli(tmp_path, "run", "--no-report", *options, sys.executable, "train.py")
    name = "mine" if options else "train"
    assert done.returncode == 0, done.stderr
    assert f"opscope: wrote {name}.opscope\n" in done.stderr
    assert done.stderr.endswith(
        f"opscope: {name}.opscope was created meanwhile, so this profile has another name\n"
        f"opscope: wrote {name}-2.opscope\n"
    )
    assert texts(tmp_path / f"{name}.opscope") == ["outer"]
    assert texts(tmp_path / f"{name}-2.opscope") == ["outer"]
    assert not [*tmp_path.glob(".*")]


@pytest.mark.parametrize("options", [(), ("--steps", "1:2")])
def test_a_program_that_captures_by_itself_is_a_part_of_the_run(options, script, tmp_path):
    script("""
        import opscope
        for n in range(2):
            opscope.step()
            with opscope.capture("own.opscope"), opscope.annotate(f"inside {n}"):
                pass
        opscope.step()
        print("done")
    """)
    done = cli(tmp_path, "run", "--no-report", *options, sys.executable, "train.py")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert done.stderr.count("opscope run records this process") == 1
    assert not (tmp_path / "own.opscope").exists()
    inside = [text for text in texts(tmp_path / "train.opscope") if text.startswith("inside")]
    assert inside == (["inside 1"] if options else ["inside 0", "inside 1"])
    assert recording_folder.parts(tmp_path) == []


def test_a_signal_that_is_ignored_stays_so_while_the_profile_is_made(script, tmp_path):
    script(MANY.format(many=3, status=4))
    script(SLOW, "slow.py")
    process = subprocess.Popen(
        [sys.executable, "slow.py", "run", "-o", "x", sys.executable, "train.py"],
        cwd=tmp_path,
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),  # as nohup does
    )
    assert [process.stdout.readline() for _ in range(2)] == ["out\n", "making\n"]
    process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=50)
    assert err.startswith("opscope: SIGTERM while the profile was written")


def test_what_a_private_run_leaves_is_read_as_private(script, tmp_path):
    script("""
        import os, opscope
        with opscope.annotate("aten::mm(f32[2,2], f32[2,2]) -> f32[2,2] @/home/me/secret/x.py:3"):
            pass
        os.kill(os.getppid(), 9)
    """)
    done = cli(tmp_path, "run", "--private", sys.executable, "train.py")
    assert done.returncode == -signal.SIGKILL
    left = recording_in(tmp_path)
    for _ in range(500):  # the program ends by itself
        if any('"stop"' in path.read_text() for path in left.glob("part-*/facts.jsonl")):
            break
        time.sleep(0.02)
    trace = opscope.load(left).trace
    assert "train.py" not in str(trace.origin["command"])
    assert trace["processes"]["host"].to_list() != [socket.gethostname()]
    assert "/home/me/secret" not in "".join(trace["ranges"]["text"].cast(str))
