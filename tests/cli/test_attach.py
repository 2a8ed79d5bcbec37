"""`opscope attach`: some steps of a program that runs, which goes on as if nothing had been."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

import opscope
from opscope.backends import attachable_program
from opscope.cli import inject
from opscope.core.capture import attach_place
from opscope.readers.recording.reader import collect

from .test_run import cli, environment

pytestmark = pytest.mark.skipif(
    not attach_place.SUPPORTED, reason="this system does not tell who is at the end of a socket"
)

#: Steps until it is told to end, by a file; the sum of its "weights" shows that it computed the same.
PROGRAM = """
    import os, sys, time, opscope
    {init}
    total = 0.0
    for number in range(100_000):
        opscope.step(number)
        with opscope.annotate("work"):
            total += number ** 0.5
            time.sleep(0.005)
        if os.path.exists("end"):
            break
    {last}
    print("total", total == sum(n ** 0.5 for n in range(number + 1)))
"""


@pytest.fixture(autouse=True)
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(attach_place.FOLDER, str(tmp_path / "sockets"))


class Running:
    def __init__(self, folder: Path, *command: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pids = self._listening(1)

    def _listening(self, many: int) -> list[int]:
        until = time.monotonic() + 60
        while time.monotonic() < until and self.process.poll() is None:
            found = [place.pid for place in attach_place.places()]
            if len(found) >= many:
                return found
            time.sleep(0.05)
        self.process.kill()
        raise AssertionError(self.process.communicate())

    def ended(self) -> tuple[str, str]:
        (self.folder / "end").touch()
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, err
        return out, err


@pytest.fixture
def running(tmp_path: Path) -> Iterator[list[Running]]:
    found: list[Running] = []
    yield found
    for one in found:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


def started(
    running: list[Running], tmp_path: Path, *options: str, init: str = "", last: str = ""
) -> Running:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(PROGRAM).format(init=init, last=last))
    words = (sys.executable, "-m", "opscope", "run", *options, "--", sys.executable, "train.py")
    running.append(Running(tmp_path, *(words if options else (sys.executable, "train.py"))))
    return running[-1]


def steps(path: Path) -> list[int]:
    found = opscope.load(path).trace["ranges"]
    texts = found.filter(pl.col("category") == "step").sort("start")["text"].cast(str).to_list()
    return [int(text.split()[1]) for text in texts]


@pytest.mark.parametrize("how", ["run", "init"])
def test_ten_steps_of_a_running_program_and_it_goes_on(
    tmp_path: Path, running: list[Running], how: str
) -> None:
    options = ("--attachable", "--no-report") if how == "run" else ()
    program = started(
        running, tmp_path, *options, init="" if how == "run" else "opscope.init(attach=True)"
    )
    done = cli(tmp_path, "attach", program.pids[0], "--steps", "10")
    assert done.returncode == 0, done.stderr
    assert "Diagnosis" in done.stderr
    found = steps(tmp_path / "train-attach-1.opscope")
    assert len(found) == 10
    assert found == list(range(found[0], found[0] + 10))
    again = cli(tmp_path, "attach", program.pids[0], "--steps", "2", "--no-report", "-o", "mine")
    assert again.returncode == 0, again.stderr
    assert len(steps(tmp_path / "mine.opscope")) == 2
    out, err = program.ended()
    assert "total True" in out
    assert "Traceback" not in err
    assert list((tmp_path / "sockets").iterdir()) == []
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"end", "mine.opscope", "sockets", "train-attach-1.opscope", "train.py"}


def test_a_time_is_recorded_and_status_and_stop_are_told(
    tmp_path: Path, running: list[Running]
) -> None:
    program = started(running, tmp_path, "--attachable")
    pid = program.pids[0]
    assert cli(tmp_path, "attach").stdout.startswith(f"{pid} train.py, idle")
    assert "nothing is being recorded" in cli(tmp_path, "attach", pid, "--stop").stderr
    words = [sys.executable, "-m", "opscope", "attach", str(pid), "--duration", "60", "--no-report"]
    client = subprocess.Popen(
        words, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 60
    while time.monotonic() < until:
        said = cli(tmp_path, "attach", pid, "--status").stdout
        if re.search(r"recording, [1-9]\d* steps so far", said):
            break
    second = cli(tmp_path, "attach", pid, "--steps", "2")
    assert second.returncode == 2
    assert "already running" in second.stderr
    stopped = cli(tmp_path, "attach", pid, "--stop")
    assert stopped.returncode == 0, stopped.stderr
    assert client.wait(60) == 0
    assert steps(tmp_path / "train-attach-1.opscope")
    out, _ = program.ended()
    assert "total True" in out


def test_a_program_that_ends_meanwhile_leaves_what_was_recorded(
    tmp_path: Path, running: list[Running]
) -> None:
    program = started(running, tmp_path, "--attachable")
    words = [sys.executable, "-m", "opscope", "attach", str(program.pids[0]), "--steps", "90000"]
    client = subprocess.Popen(
        [*words, "--no-report"], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 60
    while time.monotonic() < until:
        said = cli(tmp_path, "attach", program.pids[0], "--status").stdout
        if re.search(r"recording, \d{2,} steps so far", said):  # a busy machine's steps take long
            break
    time.sleep(0.3)
    program.ended()
    _, said = client.communicate(timeout=60)
    assert client.returncode == 0, said
    # it may end between two questions, or before it has gone answer that its recording has ended
    assert re.search(r"ended while it was recorded|of 90,000 steps recorded: it ended", said)
    assert len(steps(tmp_path / "train-attach-1.opscope")) > 10


def test_a_dump_writes_the_ring_and_the_program_goes_on(
    tmp_path: Path, running: list[Running]
) -> None:
    program = started(
        running, tmp_path, "--attachable", "--last", "20 steps", "--no-report", "-o", "whole"
    )
    pid = program.pids[0]
    time.sleep(1)
    assert "keeps the last 20 steps" in cli(tmp_path, "attach").stdout
    refused = cli(tmp_path, "attach", pid, "--steps", "2")
    assert refused.returncode == 2
    assert "--dump" in refused.stderr
    for number in (1, 2):
        done = cli(tmp_path, "attach", pid, "--dump")
        assert done.returncode == 0, done.stderr
        found = steps(tmp_path / f"train-dump-{number}.opscope")
        assert 20 <= len(found) <= 21
    out, _ = program.ended()
    assert "total True" in out
    assert 20 <= len(steps(tmp_path / "whole.opscope")) <= 21
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


RANKS = """
    import os, subprocess, sys
    if "RANK" not in os.environ:
        many = [subprocess.Popen([sys.executable, "train.py"],
                env={**os.environ, "RANK": str(n), "WORLD_SIZE": "2"}) for n in range(2)]
        sys.exit(max(one.wait() for one in many))
"""


def test_the_ranks_of_a_launcher_are_recorded_at_once(
    tmp_path: Path, running: list[Running]
) -> None:
    launcher = textwrap.indent(textwrap.dedent(RANKS), "    ").strip()
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(PROGRAM.format(init=launcher, last="")))
    running.append(
        Running(tmp_path, sys.executable, "-m", "opscope", "run", "--attachable", "--", "train.py")
    )
    program = running[-1]
    program._listening(3)
    done = cli(tmp_path, "attach", program.process.pid, "--steps", "4", "--no-report")
    assert done.returncode == 0, done.stderr
    trace = opscope.load(tmp_path / "train-attach-1.opscope").trace
    assert sorted(trace["processes"]["rank"].to_list()) == [0, 1]
    whole = trace["ranges"].filter(pl.col("category") == "step").group_by("process").len()
    assert whole["len"].to_list() == [4, 4]
    program.ended()


def test_who_is_not_attachable_is_told_why(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert "no such process" in cli(tmp_path, "attach", gone.pid).stderr
    mine = cli(tmp_path, "attach", os.getpid())
    assert mine.returncode == 2
    assert "opscope run --attachable" in mine.stderr
    assert "no attachable program" in cli(tmp_path, "attach").stderr
    assert "choose one" in cli(tmp_path, "attach", "1", "--dump", "--stop").stderr


def test_a_program_is_not_attachable_unless_it_says_so(
    tmp_path: Path, running: list[Running]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import opscope; opscope.init(); opscope.step()"],
        env=environment(),
        cwd=tmp_path,
        check=True,
    )
    assert done.returncode == 0
    assert not (tmp_path / "sockets").exists()
    done = cli(tmp_path, "run", "--no-report", "--", sys.executable, "-c", "import opscope")
    assert not (tmp_path / "sockets").exists()


def test_shutdown_closes_the_socket(tmp_path: Path) -> None:
    program = """
        import os, opscope
        opscope.init("simple", attach=True)
        assert len(os.listdir(os.environ["OPSCOPE_ATTACH_DIR"])) == 1
        opscope.init("simple", attach=True)
        opscope.shutdown()
        assert os.listdir(os.environ["OPSCOPE_ATTACH_DIR"]) == []
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment(),
        cwd=tmp_path,
        check=True,
    )


def test_a_child_forked_while_somebody_is_attached_is_not_recorded(
    tmp_path: Path, running: list[Running]
) -> None:
    fork = """
    import os
    def forks():
        pid = os.fork()
        if not pid:
            with opscope.annotate("in the child"):
                pass
            os._exit(0)
        os.waitpid(pid, 0)
    opscope.init(attach=True)
    """
    script = tmp_path / "train.py"
    text = textwrap.dedent(PROGRAM).format(init=textwrap.dedent(fork).strip(), last="")
    script.write_text(text.replace("time.sleep(0.005)", "time.sleep(0.005); forks()"))
    running.append(Running(tmp_path, sys.executable, "train.py"))
    program = running[-1]
    done = cli(tmp_path, "attach", program.pids[0], "--steps", "5", "--no-report")
    assert done.returncode == 0, done.stderr
    trace = opscope.load(tmp_path / "train-attach-1.opscope").trace
    assert trace["processes"].height == 1
    assert "in the child" not in trace["ranges"]["text"].cast(str).to_list()
    _, err = program.ended()
    assert "DeprecationWarning" not in err


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python can be told to run something")
def test_inject_is_refused_before_python_3_14(tmp_path: Path) -> None:
    done = cli(tmp_path, "attach", os.getpid(), "--inject")
    assert done.returncode == 2
    assert "--inject needs Python 3.14" in done.stderr


def test_inject_has_the_program_make_itself_attachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def remote(pid: int, script: str) -> None:
        assert pid == os.getpid()
        assert Path(script).parent.stat().st_mode & 0o777 == 0o700
        ran.append(Path(script).read_text())
        exec(compile(ran[-1], script, "exec"), {})

    version = SimpleNamespace(version_info=(3, 14), remote_exec=remote)
    monkeypatch.setattr(inject, "sys", version)
    try:
        inject.into(os.getpid())
        assert [place.pid for place in attach_place.places()] == [os.getpid()]
    finally:
        opscope.shutdown()
    assert "opscope.init(attach=True)" in ran[0]
    assert list(attach_place.places()) == []


def test_inject_says_what_python_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(pid: int, script: str) -> None:
        raise PermissionError("remote debugging is disabled")

    version = SimpleNamespace(version_info=(3, 14), remote_exec=refused)
    monkeypatch.setattr(inject, "sys", version)
    with pytest.raises(inject.Impossible, match="remote debugging is disabled"):
        inject.into(os.getpid())
    monkeypatch.setattr(inject, "_WAIT_S", 0.2)
    version.remote_exec = lambda pid, script: None
    with pytest.raises(inject.Impossible, match="did not become attachable"):
        inject.into(os.getpid())


def test_ctrl_c_ends_the_recording_and_writes_it(tmp_path: Path, running: list[Running]) -> None:
    program = started(running, tmp_path, "--attachable")
    client = subprocess.Popen(
        [sys.executable, "-m", "opscope", "attach", str(program.pids[0]), "--steps", "90000"],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if "steps so far" in cli(tmp_path, "attach", program.pids[0], "--status").stdout:
            break
    time.sleep(0.3)
    client.send_signal(signal.SIGINT)
    _, said = client.communicate(timeout=60)
    assert client.returncode == 0, said
    assert "interrupted" in said
    assert steps(tmp_path / "train-attach-1.opscope")
    assert "idle" in cli(tmp_path, "attach", program.pids[0], "--status").stdout
    program.ended()


@pytest.mark.parametrize("meanwhile", [0, 1, 2, 5])
def test_steps_that_pass_while_the_recording_begins_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unobserved: None, meanwhile: int
) -> None:
    """A profiler takes some ms to begin, after the recorder has: on a GPU ten steps were eleven."""
    begin = attachable_program.begin

    def slow(folder: Path) -> SimpleNamespace:
        begin(folder, "recorder")
        for _ in range(meanwhile):
            opscope.step()
        return SimpleNamespace(name="kineto")

    monkeypatch.setattr(attachable_program, "begin", slow)
    program = attachable_program.Attachable(tmp_path)
    monkeypatch.setattr(attachable_program.Attachable, "_server_pid", os.getpid())
    folder = Path(program._start(3, None)["folder"])
    for _ in range(9):
        opscope.step()
    assert program._status()["ended"] == "after 3 steps"
    recorded = collect(folder)["ranges"]
    whole = recorded.filter(
        pl.col("category").cast(pl.String) == "step", pl.col("end").is_not_null()
    )
    # none can be ended while it begins: then the first step that comes ends it
    assert len(whole) == max(3, meanwhile)
