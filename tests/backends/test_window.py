"""Which part of a run has kernels: the policy alone, told of steps and of time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opscope.backends import window as windows
from opscope.backends.window import CHOSEN, EXACT, WHOLE, Bounds, Window

SECOND = 1_000_000_000


def steps_of(window: Window, lengths: list[float], events: int = 0) -> int | None:
    """Tell of steps that take so many seconds; at which step the window ends."""
    now = window.opened
    for number, length in enumerate([0.0, *lengths]):
        now += int(length * SECOND)
        if window.step(number, now, events) is not None:
            return number
    return None


def test_a_window_begins_once_steps_are_alike() -> None:
    window = Window(CHOSEN, 0)
    ended = steps_of(window, [5, 3, 0.9, 0.5, 0.1, 0.1, 0.11, *[0.1] * 40])
    assert window.first == 7  # steps 4, 5 and 6 were alike
    assert ended == 27
    assert window.last == 26
    assert window.over == "after 20 steps"


def test_steps_that_are_never_alike_are_waited_for_no_longer_than_a_minute() -> None:
    window = Window(CHOSEN, 0)
    assert steps_of(window, [1.0, 8.0] * 30) is not None
    assert window.begin is not None
    assert window.begin <= 70 * SECOND
    assert window.over == "after 60 s"


def test_warm_up_is_not_of_the_window_however_alike_its_steps_are() -> None:
    window = Window(CHOSEN, 0)
    steps_of(window, [1.0] * 30)
    assert window.first is not None
    assert window.first >= windows.WARM + windows.ALIKE


def test_a_program_without_steps_has_a_window_of_a_minute() -> None:
    window = Window(CHOSEN, 0)
    assert window.tick(59 * SECOND, 0) is None
    assert window.tick(60 * SECOND, 0) == "after 60 s"
    assert window.begin is None


def test_one_lonely_step_does_not_hold_the_window_open() -> None:
    window = Window(CHOSEN, 0)
    window.step(0, SECOND, 0)
    assert window.tick(60 * SECOND, 0) is None
    assert window.tick(200 * SECOND, 0) is not None


def test_events_end_any_window_but_the_whole_run() -> None:
    for bounds in (EXACT, CHOSEN):
        window = Window(bounds, 0)
        assert window.step(0, 1, windows.EVENTS - 1) is None
        assert "2,000,000 events" in (window.step(1, 2, windows.EVENTS) or "")
    assert Window(WHOLE, 0).tick(10**15, 10**12) is None


def test_in_the_midst_of_a_step_a_little_more_is_let_pass() -> None:
    window = Window(Bounds(events=1000), 0)
    window.step(0, 0, 0)
    assert window.tick(1, 1100) is None
    assert window.tick(2, 1250) is not None


def test_an_exact_window_knows_neither_steps_nor_seconds() -> None:
    window = Window(EXACT, 0)
    assert steps_of(window, [100.0] * 500) is None
    assert window.begin == 0


def test_a_step_told_twice_counts_once() -> None:
    window = Window(Bounds(steps=3), 0)
    for number in range(3):
        assert window.step(number, number * 2, 0) is None
        assert window.step(number, number * 2 + 1, 0) is None
    assert window.step(3, 6, 0) == "after 3 steps"


@given(
    st.lists(st.floats(1e-6, 100), max_size=300),
    st.lists(st.integers(0, 40_000), max_size=300),
)
def test_no_chosen_window_goes_on_beyond_its_bounds(lengths: list[float], grown: list[int]) -> None:
    window, now, events = Window(CHOSEN, 0), 0, 0
    for number, (length, more) in enumerate(zip(lengths, grown, strict=False)):
        now += int(length * SECOND)
        events += more
        if window.step(number, now, events):
            break
        assert events < windows.EVENTS
        if window.first is not None and window.begin is not None:
            assert number - window.first < windows.STEPS
            assert now - window.begin < windows.SECONDS * SECOND
        elif number > windows.MOST + 1:
            raise AssertionError("it never began")
