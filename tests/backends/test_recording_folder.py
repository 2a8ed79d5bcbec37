"""Captures that the disk does not take: the block's outcome is its own, and the recording is kept."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pytest

import opscope
from opscope.backends import recording_folder
from opscope.backends.profile_capture import ProfileCapture
from opscope.core.capture import recorder_sink, session
from opscope.readers.profile import profile_writing
from opscope.readers.recording.reader import collect


@pytest.fixture(autouse=True)
def nothing_running(unobserved):
    yield
    session.stop()


@contextlib.contextmanager
def of_a_callback(path):
    session.start(ProfileCapture(path, "recorder"))
    try:
        yield
    finally:
        session.stop()


def of_a_block(path):
    return opscope.capture(path, backend="recorder")


WAYS = pytest.mark.parametrize("way", [of_a_block, of_a_callback])
FAULTS = [
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EDQUOT, "Disk quota exceeded"),
    PermissionError(errno.EACCES, "Permission denied"),
    FileNotFoundError(errno.ENOENT, "No such file or directory"),
    RuntimeError("a fault of ours"),
]


def failing(error):
    def fail(*args, **kwargs):
        raise error

    return fail


@WAYS
@pytest.mark.parametrize("error", FAULTS, ids=str)
def test_a_profile_that_cannot_be_written_leaves_its_recording(
    error, way, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(profile_writing, "_fill", failing(error))
    with way(tmp_path / "run.opscope"), opscope.annotate("inside"):
        pass
    (left,) = tmp_path.iterdir()
    assert collect(left)["ranges"]["text"].cast(str).to_list() == ["inside"]
    (line,) = caplog.messages
    assert (error.strerror if isinstance(error, OSError) else "a fault of ours") in line
    assert line.endswith(f"what was recorded is kept: opscope report {left}")


@WAYS
@pytest.mark.parametrize("error", FAULTS[:4], ids=str)
def test_a_capture_that_cannot_begin_lets_the_block_run(error, way, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(recorder_sink.Recorder, "_open", failing(error))
    ran = []
    with way(tmp_path / "run.opscope"):
        ran.append(1)
    assert ran
    assert [one.startswith("opscope: nothing is recorded into") for one in caplog.messages] == [
        True
    ]
    assert list(tmp_path.iterdir()) == []
    assert session.recorder() is None


@WAYS
@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that takes nothing")
def test_a_folder_that_takes_nothing_lets_the_block_run(way, caplog):
    with way("/proc/self/x/run.opscope"):
        ran = True
    assert ran
    assert len(caplog.messages) == 1


@WAYS
def test_the_block_s_own_error_comes_through_where_the_profile_is_not_written(
    way, tmp_path, monkeypatch
):
    monkeypatch.setattr(profile_writing, "_fill", failing(FAULTS[0]))
    with pytest.raises(ZeroDivisionError), way(tmp_path / "run.opscope"):
        raise ZeroDivisionError


@WAYS
def test_ctrl_c_while_the_profile_is_written_leaves_the_recording(
    way, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(profile_writing, "_fill", failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt), way(tmp_path / "run.opscope"):
        pass
    (left,) = tmp_path.iterdir()
    assert len(recording_folder.parts(left)) == 1
    assert caplog.messages[-1].endswith(f"interrupted; {recording_folder.left(left)}")


@WAYS
def test_a_folder_that_goes_away_is_told_and_stays_away(way, tmp_path, caplog):
    import shutil

    with way(tmp_path / "out" / "run.opscope"):
        shutil.rmtree(tmp_path / "out")
    assert "what was recorded is lost: its folder is gone" in caplog.messages[-1]
    assert list(tmp_path.iterdir()) == []


@WAYS
def test_a_finished_recording_has_a_number_where_its_name_is_taken_by_then(way, tmp_path, caplog):
    target = tmp_path / "run.opscope"
    with opscope.capture(tmp_path / "other.opscope", backend="recorder"):
        pass
    with way(target), opscope.annotate("mine"):
        (tmp_path / "other.opscope").rename(target)
    again = tmp_path / "run-2.opscope"
    assert opscope.load(again).trace["ranges"]["text"].cast(str).to_list() == ["mine"]
    assert len(opscope.load(target).trace["ranges"]) == 0
    assert f"so the profile is {again}" in caplog.messages[-1]


def test_a_name_that_is_taken_in_the_very_last_moment_is_not_written_over(tmp_path, monkeypatch):
    trace = profile_writing.Trace.of({})
    target = tmp_path / "run.opscope"
    refuse = profile_writing._refuse

    def late(path, force):
        refuse(path, force)
        if path == target:
            monkeypatch.setattr(profile_writing, "_refuse", refuse)
            target.mkdir()
            (target / "precious").touch()
            monkeypatch.setattr(Path, "exists", lambda self: False)

    monkeypatch.setattr(profile_writing, "_refuse", late)
    written = profile_writing.write(target, trace, others=profile_writing.numbered(target))
    monkeypatch.undo()
    assert written == tmp_path / "run-2.opscope"
    assert [one.name for one in target.iterdir()] == ["precious"]
