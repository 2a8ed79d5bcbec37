"""A capture that leaves a profile: all callbacks make this one, and a failed one leaves nothing."""

from __future__ import annotations

from typing import ClassVar

import pytest

import opscope
import opscope.backends.profile_capture as profile
from opscope.backends import best
from opscope.backends.recorder import RecorderCapture
from opscope.callbacks.stepping import Stepping
from opscope.core.capture import session


@pytest.fixture(autouse=True)
def nothing_running(fresh_steps):
    yield
    session.stop()


def test_a_window_of_steps_is_a_profile(tmp_path):
    steps = Stepping(tmp_path / "run.opscope", start=1, stop=3, backend="recorder")
    steps.begin()
    for number in range(4):
        steps.step_begins()
        with opscope.annotate(f"work {number}"):
            pass
        if number == 1:
            assert isinstance(session.capturing(), profile.ProfileCapture)
    steps.end()
    opscope.shutdown()
    texts = opscope.load(tmp_path / "run.opscope").trace["ranges"]["text"].cast(str).to_list()
    assert [text for text in texts if text.startswith("work")] == ["work 1", "work 2"]
    assert [path.name for path in tmp_path.iterdir()] == ["run.opscope"]


def test_what_exists_is_kept_unless_forced(tmp_path):
    path = tmp_path / "run.opscope"
    for force in (False, True):
        mine = profile.ProfileCapture(path, "recorder", force)
        session.start(mine)
        with opscope.annotate("x"):
            pass
        session.stop()
        for again in (profile.ProfileCapture(path), Stepping(path, 0, 1)._make(0)):
            with pytest.raises(FileExistsError, match="force=True"):
                again.start()
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(FileExistsError, match="no profile"):
        profile.ProfileCapture(other, force=True).start()


def test_one_that_cannot_start_leaves_nothing_and_may_be_tried_again(tmp_path, monkeypatch):
    class Refusing(RecorderCapture):
        asked: ClassVar[list[str]] = []

        def warmup(self):
            self.asked.append("warmup")

        def start(self):
            self.asked.append("start")
            raise session.SessionError("taken")

    monkeypatch.setattr(best, "make", lambda name, folder: Refusing(folder))
    mine = Stepping(tmp_path / "run.opscope", 0, 1, backend="recorder")._make(0)
    mine.warmup()
    assert Refusing.asked == ["warmup"]
    for _ in range(2):
        with pytest.raises(session.SessionError, match="taken"):
            session.start(mine)
        assert list(tmp_path.iterdir()) == []
    assert session.capturing() is None
