"""A disk that takes nothing for a while, and a limit of files' sizes: what is lost is told, and no file is half."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import opscope
from opscope.backends.ring import RingCapture
from opscope.core import recording_format as recording
from opscope.core.capture import light_recording, recorder_sink, ring_recorder, session
from opscope.core.capture.recorder_sink import Recorder
from opscope.core.capture.ring_bounds import Bounds, Last
from opscope.core.refusals import WAYS_OUT, refusal
from opscope.readers.recording.process_part import read_part

ROOT = Path(opscope.__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def nothing_left(fresh_steps: Any) -> Iterator[None]:
    yield
    session.stop()
    session.listen(None)
    session.measure_steps(None)


class Disk:
    """Stands in for ``os`` where opscope writes: while it is ``full``, three bytes of each write fit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full, self.refuses_files = False, True
        for module in (recorder_sink, ring_recorder, light_recording):
            monkeypatch.setattr(module, "os", self)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, descriptor: int, data: Any) -> int:
        if not self.full:
            return os.write(descriptor, data)
        if len(data) > 3 and not os.fstat(descriptor).st_size % 7:
            return os.write(descriptor, data[:3])
        raise self.error()

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        if self.full and flags & os.O_CREAT and self.refuses_files:
            raise self.error()
        return os.open(path, flags, mode)

    def error(self) -> OSError:
        return OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def work(recorder: Recorder, name: str) -> None:
    with session.annotate(name):
        pass
    recorder.flush()


def told(folder: Path) -> list[str]:
    return read_part(folder)["notes"]["what"].to_list()


def names(folder: Path) -> list[str]:
    return read_part(folder)["ranges"].sort("start")["text"].cast(str).to_list()


def test_a_recording_ends_where_the_disk_is_full_and_says_so_to_who_reads_it(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(tmp_path)
    recorder.start()
    recorder._idle.stop()
    session.listen(recorder)
    work(recorder, "before")
    disk.full = True
    work(recorder, "lost")
    disk.full = False  # from here on there is room for the note
    work(recorder, "lost too")
    folder = recorder.folder
    assert folder is not None
    assert names(folder) == ["before"]
    assert any(note.startswith("the recording ended early: No space left") for note in told(folder))
    assert not any("without closing" in note for note in told(folder))
    for file in (recording.STRINGS, recording.FACTS):
        assert (folder / file).read_bytes().endswith(b"\n")
    assert not (folder / recording.EVENTS).stat().st_size % recording.RECORD_BYTES
    (line,) = caplog.messages
    assert line.endswith("No space left on device (free some, or choose another disk)")


def test_a_recording_that_cannot_begin_leaves_the_reason_and_no_part(
    tmp_path: Path, disk: Disk
) -> None:
    recorder = Recorder(tmp_path)
    recorder.start(lazy=True)
    recorder._idle.stop()
    session.listen(recorder)
    disk.full = True
    work(recorder, "lost")
    session.listen(None)
    recorder.stop()
    (left,) = tmp_path.iterdir()
    assert left.name == recording.UNRECORDED.format(os.getpid())
    assert left.read_text().splitlines()[1].startswith("No space left on device (")


@pytest.mark.parametrize("refuses_files", [True, False])
def test_a_ring_begins_anew_once_the_disk_is_free(
    tmp_path: Path,
    disk: Disk,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    refuses_files: bool,
) -> None:
    disk.refuses_files = refuses_files  # a disk without room may still take an empty file
    monkeypatch.setattr(ring_recorder, "_RETRY_NS", 0)
    capture = RingCapture(tmp_path, Bounds(last=Last(seconds=60.0)))
    session.start(capture)
    recorder = capture.recorder
    assert recorder is not None
    recorder._idle.stop()
    work(recorder, "before")
    disk.full = True
    for number in range(3):
        work(recorder, f"lost {number}")
    folder = recorder.folder
    assert folder is not None
    assert names(folder) == ["before"]  # a kill now leaves it
    assert len([*folder.glob("segment-*")]) <= 2
    disk.full = False
    work(recorder, "lost 3")
    work(recorder, "after")
    with session.annotate("lost 2"):  # a text that was new while the disk was full
        pass
    session.stop()
    assert names(folder)[-2:] == ["after", "lost 2"]
    assert "before" not in names(folder)
    (note,) = [note for note in told(folder) if "could not be written" in note]
    assert note.startswith("the ring could not be written 1 times, for ")
    assert not any("ended early" in note for note in told(folder))
    assert [line.partition(" (")[0].rsplit(": ", 1)[-1] for line in caplog.messages] == [
        "No space left on device",
        "what it had is not in it",
    ]


def test_light_mode_loses_nothing_to_a_disk_that_was_full(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(light_recording, "RETRY_NS", 1)
    mode = light_recording.LightRecording(tmp_path, rate=0)
    mode.start()
    for number in range(5):
        session.step(number)
    recorder = mode._recorder
    assert recorder is not None
    recorder._idle.stop()
    recorder.flush()
    disk.full = True
    monkeypatch.setattr(
        light_recording, "refuse_size", lambda *_: (_ for _ in ()).throw(disk.error())
    )
    for number in range(5, 9):
        session.step(number)
        recorder.flush()
    folder = recorder.folder
    assert folder is not None
    disk.full = False
    monkeypatch.undo()
    session.step(9)
    recorder.flush()
    mode.stop()
    assert read_part(folder)["light"]["steps"].to_list() == [9]
    assert [line.partition(" (")[0].rsplit("opscope: ")[-1][:30] for line in caplog.messages] == [
        "light mode goes on in memory, ",
        "light mode is written again; n",
    ]


LIMITED = """
import resource, signal, sys
import opscope
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
with opscope.capture(sys.argv[1], backend="recorder"):
    for number in range(2000):
        with opscope.annotate(f"work {number}"):
            pass
assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_DFL
print("out")
sys.exit(5)
"""


def test_a_limit_of_files_sizes_does_not_end_a_program_by_its_signal(tmp_path: Path) -> None:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "x.opscope")],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (5, "out\n"), done.stderr
    assert "File too large (raise the limit, ulimit -f" in done.stderr
    assert not (tmp_path / "x.opscope").exists()


def test_each_refusal_has_the_systems_words_and_a_way_out() -> None:
    for number, way_out in WAYS_OUT.items():
        assert refusal(OSError(number, os.strerror(number))) == f"{os.strerror(number)} ({way_out})"
    assert refusal(FileNotFoundError(errno.ENOENT, "gone")) == "gone"
    assert refusal(OSError("our own words")) == "our own words"
