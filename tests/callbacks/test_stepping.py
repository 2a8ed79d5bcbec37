"""A capture that fails never reaches the training loop that counts its steps, whichever callback counts them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from opscope.callbacks import stepping, windows
from opscope.callbacks.stepping import Stepping
from opscope.callbacks.windows import Windows
from opscope.core.capture import session

FAILURES = ["make", "warmup", "start", "stop"]


class Failing:
    """A capture that raises OSError in the method of the name ``fails``."""

    def __init__(self, fails: str, log: list[str]) -> None:
        self.fails = fails
        self.log = log
        self._does("make")

    def warmup(self) -> None:
        self._does("warmup")

    def start(self) -> None:
        self._does("start")

    def stop(self) -> None:
        self._does("stop")

    def _does(self, what: str) -> None:
        self.log.append(what)
        if what == self.fails:
            raise OSError("no space")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, fails: str, fresh_steps: None) -> list[str]:
    """What the captures of the callbacks are asked for."""
    log: list[str] = []
    for module in (stepping, windows):
        monkeypatch.setattr(module, "observe", lambda: None)
        monkeypatch.setattr(module, "profile", lambda *_: Failing(fails, log))
    return log


def train(steps: Stepping, count: int) -> list[int]:
    """Return the numbers of the steps that ran."""
    ran = []
    steps.begin()
    for _ in range(count):
        steps.step_begins()
        ran.append(steps.number)
        steps.step_ends()
    steps.end()
    return ran


@pytest.mark.parametrize("fails", FAILURES)
def test_a_failed_capture_is_logged_once_and_all_steps_run(
    asked: list[str], fails: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    by_user = session.steps_by_user
    steps = Stepping(tmp_path / "run.opscope", start=2, stop=4, warmup=1, repeat=3)
    assert train(steps, 12) == list(range(12))
    assert asked == ["make", "warmup", "start", "stop"][: FAILURES.index(fails) + 1]
    assert caplog.text.count("are not captured further") == 1
    assert "no space" in caplog.text
    assert session.capturing() is None
    assert session.steps_by_user is by_user


@pytest.mark.parametrize("fails", ["stop"])
def test_a_capture_that_cannot_be_written_at_the_end_leaves_the_step_count_to_others(
    asked: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    by_user = session.steps_by_user
    train(Stepping(tmp_path / "run.opscope", start=1, stop=None), 3)
    assert asked == ["make", "start", "stop"]
    assert caplog.text.count("are not captured further") == 1
    assert session.capturing() is None
    assert session.steps_by_user is by_user


@pytest.mark.parametrize("fails", FAILURES)
def test_windows_log_a_failed_capture_once(
    asked: list[str], fails: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ranges = Windows(2, 4, tmp_path / "run.opscope", warmup=1, repeat=3)
    ranges.begin()
    for number in range(12):
        ranges.comes(number, 1, "")
        ranges.passed()
    ranges.finish()
    assert asked == ["make", "warmup", "start", "stop"][: FAILURES.index(fails) + 1]
    assert caplog.text.count("are not captured further") == 1
    assert session.capturing() is None
    assert [one.levelno for one in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize("fails", ["start"])
def test_the_training_after_one_whose_capture_failed_is_captured(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps = Stepping(tmp_path / "run.opscope", start=1, stop=3, repeat=2)
    train(steps, 3)
    assert asked == ["make", "start"]
    monkeypatch.setattr(stepping, "profile", lambda *_: Failing("nothing", asked))
    assert train(steps, 3) == [3, 4, 5]
    assert asked == ["make", "start", "make", "start", "stop"]
