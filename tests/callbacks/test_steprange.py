"""StepRange captures exactly the steps it was asked for, whatever the numbers do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.callbacks.steprange import State, StepRange
from opscope.core.capture import session


class Fake:
    """A capture that keeps what was asked of it."""

    def __init__(self, log: list[tuple[str, int]], window: int) -> None:
        self.log = log
        self.window = window

    def warmup(self) -> None:
        self.log.append(("warmup", self.window))

    def start(self) -> None:
        self.log.append(("start", self.window))

    def stop(self) -> None:
        self.log.append(("stop", self.window))


@pytest.fixture(autouse=True)
def nothing_running() -> Iterator[None]:
    assert session.capturing() is None
    yield
    session.stop()


windows = st.tuples(st.integers(0, 6), st.integers(1, 6), st.integers(0, 6), st.integers(0, 3)).map(
    lambda w: {"start": w[0], "stop": w[0] + w[1], "warmup": min(w[2], w[0]), "repeat": w[3]}
)


@given(windows, st.integers(0, 60))
def test_steps_captured_are_those_of_the_windows(window: dict[str, int], steps: int) -> None:
    log: list[tuple[str, int]] = []
    steprange = StepRange(**window, make=lambda k: Fake(log, k))
    captured = []
    for number in range(steps):
        steprange.at(number)
        steprange.at(number)  # told twice of one step: nothing more happens
        if session.capturing() is not None:
            captured.append(number)
    steprange.finish()
    start, stop, repeat = window["start"], window["stop"], window["repeat"]
    count = repeat or steps
    wanted = [n for k in range(count) for n in range(k * stop + start, (k + 1) * stop) if n < steps]
    assert captured == wanted
    assert session.capturing() is None
    opened = [k for what, k in log if what == "start"]
    assert opened == [k for what, k in log if what == "stop"] == sorted(set(opened))
    assert opened == sorted({n // stop for n in wanted})
    for what, k in log:
        if what == "warmup":
            assert window["warmup"] > 0
            assert ("start", k) not in log[: log.index((what, k))]


@given(windows, st.lists(st.integers(-2, 40), max_size=30))
def test_any_numbers_leave_starts_and_stops_balanced(
    window: dict[str, int], numbers: list[int]
) -> None:
    log: list[tuple[str, int]] = []
    steprange = StepRange(**window, make=lambda k: Fake(log, k))
    for number in numbers:
        state = steprange.at(number)
        assert state is steprange.state is steprange.where(max(number, 0))[0]
    steprange.finish()
    steprange.finish()
    running = 0
    for what, _ in log:
        running += {"start": 1, "stop": -1, "warmup": 0}[what]
        assert running in (0, 1)
    assert running == 0
    assert session.capturing() is None
    assert steprange.state is State.DONE


def test_without_an_end_it_captures_to_the_finish() -> None:
    log: list[tuple[str, int]] = []
    with StepRange(2, None, make=lambda k: Fake(log, k)) as steprange:
        for number in range(5):
            steprange.at(number)
    assert log == [("start", 0), ("stop", 0)]


def test_session_steps_feed_it_and_whole_steps_are_inside(fresh_steps: None) -> None:
    log: list[tuple[str, int]] = []
    seen = []
    with StepRange(1, 3, make=lambda k: Fake(log, k)):
        for _ in range(5):
            number = session.step()
            seen.append((number, session.capturing() is not None))
        session.end_step()
    assert seen == [(0, False), (1, True), (2, True), (3, False), (4, False)]
    assert log == [("start", 0), ("stop", 0)]


def test_the_end_of_the_last_step_stops_the_capture(fresh_steps: None) -> None:
    log: list[tuple[str, int]] = []
    steprange = StepRange(0, 1, make=lambda k: Fake(log, k)).attach()
    assert session.capturing() is not None, "step 0 is next from the start"
    session.begin_step()
    session.end_step()
    assert log == [("start", 0), ("stop", 0)]
    steprange.finish()


def test_it_neither_disturbs_nor_ends_another_capture(caplog: pytest.LogCaptureFixture) -> None:
    mine: list[tuple[str, int]] = []
    theirs: list[tuple[str, int]] = []
    session.start(Fake(theirs, 9))
    steprange = StepRange(0, 2, make=lambda k: Fake(mine, k))
    for number in range(4):
        steprange.at(number)
    steprange.finish()
    assert mine == []
    assert theirs == [("start", 9)]
    assert "is already running" in caplog.text


def test_a_capture_that_cannot_start_never_reaches_the_training(
    fresh_steps: None, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Fake):
        def start(self) -> None:
            raise OSError("disk full")

    steprange = StepRange(1, 2, make=lambda k: Broken([], k)).attach()
    for _ in range(3):
        session.step()
    assert session.capturing() is None
    assert caplog.text.count("is removed") == 1
    assert "disk full" in caplog.text
    steprange.finish()


@pytest.mark.parametrize(
    "window",
    [(-1, 2, 0, 1), (2, 2, 0, 1), (3, 1, 0, 1), (2, 5, 3, 1), (2, 5, -1, 1), (2, 5, 0, -1)],
)
def test_impossible_windows_are_refused(window: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError):
        StepRange(*window)


@given(windows, st.lists(st.integers(1, 9), max_size=12))
def test_of_steps_that_run_together_all_that_hold_one_of_a_window_are_captured(
    window: dict[str, int], runs: list[int]
) -> None:
    steprange = StepRange(**window, make=lambda k: Fake([], k))
    start, stop, repeat = window["start"], window["stop"], window["repeat"]
    number, captured, wanted = 0, [], []
    for many in runs:
        steprange.at(number, many)
        if session.capturing() is not None:
            captured.append(number)
        inside = range(number, number + many)
        if any(n % stop >= start and (not repeat or n // stop < repeat) for n in inside):
            wanted.append(number)
        number += many
        steprange.at(number)
    steprange.finish()
    assert captured == wanted


def test_under_a_run_it_is_said_that_the_run_contains_the_steps(
    fresh_steps: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_warned_reserved", False)
    run: list[tuple[str, int]] = []
    log: list[tuple[str, int]] = []
    runs = Fake(run, 0)
    session.reserve(runs)
    try:
        session.start(runs)
        steprange = StepRange(1, 2, make=lambda k: Fake(log, k))
        for number in range(4):
            steprange.at(number)
        assert session.capturing() is runs
    finally:
        session.stop()
        monkeypatch.setattr(session, "_reserved", None)
    assert log == []
    assert "the run's profile contains its events" in caplog.text
    assert "already running" not in caplog.text
