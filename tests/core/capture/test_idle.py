"""A recording is written while the program does nothing, and the program does not notice who writes it."""

from __future__ import annotations

import _thread
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest

from opscope.core.capture import idle
from opscope.core.capture.emit import Emitter
from opscope.core.capture.recorder_sink import Recorder
from opscope.readers.recording.process_part import read_part

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="looks there")
LONG_S = 60


def until(true, what: str):
    limit = time.monotonic() + LONG_S
    while not (found := true()):
        assert time.monotonic() < limit, what
        time.sleep(0.01)
    return found


def tasks() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def texts(folder: Path) -> list[str]:
    parts = sorted(folder.glob("part-*"))
    return [text for part in parts for text in read_part(part)["ranges"]["text"].cast(str)]


@pytest.fixture
def recorder(tmp_path, monkeypatch):
    # samples are written while the program does nothing too
    monkeypatch.setenv("OPSCOPE_SAMPLES", "0")
    monkeypatch.setenv("OPSCOPE_STACKS", "0")
    made = Recorder(tmp_path)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def emitter(recorder):
    emitter = Emitter("idle")
    emitter.listen(recorder)
    yield emitter
    emitter.listen(None)


def record(emitter: Emitter, text: str) -> None:
    emitter.push(emitter.prepare(text))
    emitter.pop()


def thread_of(recorder: Recorder) -> int:
    run = until(lambda: recorder._idle._thread, "no thread")
    return until(lambda: run.system_id, "it does not begin")


def test_what_was_recorded_is_written_though_nothing_follows(recorder, emitter, tmp_path):
    record(emitter, "the last for long")
    until(lambda: texts(tmp_path) == ["the last for long"], "never written")


def test_where_nothing_is_new_nothing_is_written(recorder, emitter, tmp_path):
    record(emitter, "only one")
    until(lambda: texts(tmp_path), "never written")
    recorder._flush_idle()
    sizes = {path: path.stat().st_size for path in recorder.folder.iterdir()}
    for _ in range(3):
        recorder.deadline = 0
        recorder._flush_idle()
    assert {path: path.stat().st_size for path in recorder.folder.iterdir()} == sizes
    assert recorder.deadline > 0


def test_a_fact_that_comes_in_an_idle_time_is_written(recorder, emitter):
    record(emitter, "first")
    until(lambda: recorder.written, "never written")
    recorder.note("warning", "of the idle time")
    facts = recorder.folder / "facts.jsonl"
    until(lambda: "of the idle time" in facts.read_text(), "never written")


def test_a_process_that_records_nothing_has_no_thread(tmp_path):
    before = tasks()
    lazy = Recorder(tmp_path)
    lazy.start(lazy=True)
    assert tasks() == before
    lazy.stop()
    assert not list(tmp_path.iterdir())


def test_the_thread_takes_no_signal_and_leaves_others_theirs(recorder, emitter):
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    record(emitter, "one")
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask
    status = Path(f"/proc/self/task/{thread_of(recorder)}/status").read_text()
    blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGCHLD", "SIGPROF", "SIGALRM"):
        assert blocked >> (getattr(signal, name) - 1) & 1, name
    assert not blocked >> (signal.SIGSEGV - 1) & 1


def test_pythons_threading_does_not_list_it(recorder, emitter):
    before = threading.enumerate()
    record(emitter, "one")
    thread_of(recorder)
    until(lambda: recorder.written, "never written")
    assert threading.enumerate() == before


def test_it_ends_with_the_recording(recorder, emitter):
    record(emitter, "one")
    task = str(thread_of(recorder))
    assert task in tasks()
    recorder.stop()
    assert not recorder._idle.runs
    until(lambda: task not in tasks(), "it lives on")


def test_it_ends_with_a_recorder_that_nobody_holds(tmp_path):
    lost = Recorder(tmp_path)
    lost.start()
    lost.new_thread()
    task, of = str(thread_of(lost)), weakref.ref(lost)
    del lost
    until(lambda: (gc.collect(), of())[1] is None, "it is held")
    until(lambda: task not in tasks(), "it lives on")


def test_where_no_thread_can_start_the_recording_goes_on(tmp_path, monkeypatch, caplog):
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    recorder, emitter = Recorder(tmp_path), Emitter("idle")
    recorder.start()
    emitter.listen(recorder)
    record(emitter, "alone")
    emitter.listen(None)
    recorder.stop()
    assert texts(tmp_path) == ["alone"]
    assert not caplog.text
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask


def test_a_fault_of_ours_ends_the_thread_alone(tmp_path, caplog):
    def fail():
        raise ValueError("ours")

    writer = idle.IdleWriter(lambda: 0, fail)
    writer.start()
    until(lambda: "ours" in caplog.text, "never told")
    writer.stop()
    assert caplog.text.count("Traceback") == 1


def test_a_writer_that_is_stopped_during_a_fork_does_not_come_back():
    writer = idle.IdleWriter(lambda: 1 << 62, lambda: None)
    writer.start()
    idle._before_fork()
    assert not writer.runs
    writer.stop()
    idle._in_parent()
    assert not writer.runs


def test_a_writer_that_is_wanted_during_a_fork_begins_after_it():
    writer = idle.IdleWriter(lambda: 1 << 62, lambda: None)
    idle._before_fork()
    idle._before_fork()  # two threads fork
    writer.start()
    idle._in_parent()
    assert not writer.runs
    idle._in_parent()
    assert writer.runs
    writer.stop()


FORKS = """
import os, time
from pathlib import Path

known, left = set(), []
# handlers before a fork run in reverse order: this one when ours have run
os.register_at_fork(before=lambda: left.extend(known & set(os.listdir("/proc/self/task"))))
import opscope
from opscope.core.capture import session
from opscope.core.capture.recorder_sink import Recorder

def has_thread():
    run = session.recorder()._idle._thread
    while run is not None and not run.system_id:
        time.sleep(0.001)
    if run is not None:
        known.add(str(run.system_id))
    return run is not None and str(run.system_id) in os.listdir("/proc/self/task")

def written(text):
    for _ in range(6000):
        if any(text in p.read_text() for p in Path("rec").glob("part-*/strings.jsonl")):
            return True
        time.sleep(0.01)
    return False

recorder = Recorder("rec")
recorder.start()
session.listen(recorder)
with opscope.annotate("before"):
    pass
for _ in range(20):
    assert has_thread()
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
assert len(known) == 20 and not left, (known, left)
child = os.fork()
if child == 0:
    assert not has_thread()
    with opscope.annotate("the child's"):
        pass
    os._exit(0 if written("the child's") and has_thread() else 1)
assert os.waitpid(child, 0)[1] == 0
with opscope.annotate("after"):
    pass
assert written("after")
session.finish()
"""


def test_a_process_that_forks_has_no_thread_of_ours_meanwhile(tmp_path):
    """Python 3.12 and later warn of a fork while the system counts more than one thread."""
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKS],
        env={**os.environ, "PYTHONPATH": str(root), "OPSCOPE_TORCH_OPS": "dispatch"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
