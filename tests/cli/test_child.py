"""When a child of `opscope run` records: steps, or times that all processes of a run share."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.backends.window import CHOSEN, EXACT, WHOLE
from opscope.cli import child
from opscope.cli.child import Plan, parse_steps
from opscope.core.capture import session

bounds = st.tuples(st.integers(0, 10**6), st.none() | st.integers(1, 10**6))


@given(
    st.none() | bounds.map(lambda b: (b[0], None if b[1] is None else b[0] + b[1])),
    st.none() | st.floats(0, 1e10),
    st.none() | st.floats(0, 1e10),
    st.booleans(),
)
def test_the_plan_survives_the_environment(steps, begin, end, whole):
    plan = Plan("recorder", steps, begin, end, whole)
    assert Plan.from_environment(plan.environment()) == plan


@pytest.mark.parametrize(
    ("text", "steps"), [("3:6", (3, 6)), ("3:", (3, None)), (":6", (0, 6)), ("4", (4, 5))]
)
def test_steps(text, steps):
    assert parse_steps(text) == steps


@pytest.mark.parametrize("text", ["", ":", "6:3", "3:3", "-1:2", "a:b", "1:2:3", "1.5"])
def test_what_is_no_range_of_steps(text):
    with pytest.raises(ValueError, match="3:6 means"):
        parse_steps(text)


class Capture:
    def __init__(self):
        self.log = []

    def start(self):
        self.log.append("start")

    def stop(self):
        self.log.append("stop")

    def warmup(self):
        pass


@pytest.fixture
def timers(monkeypatch):
    """Timers that are only noted, and a clock that stands still at 1000 s."""
    noted = []
    monkeypatch.setattr(child, "_later", lambda seconds, what: noted.append((seconds, what)))
    monkeypatch.setattr(child.time, "time", lambda: 1000.0)
    yield noted
    session.stop()


def test_a_delay_and_a_duration_become_two_timers(timers):
    capture = Capture()
    child._by_time(Plan.of(steps=None, delay=5, duration=2, backend="auto"), capture, None)
    assert [seconds for seconds, _ in timers] == [5, 7]
    assert capture.log == []
    for _, what in timers:
        what()
    assert capture.log == ["start", "stop"]


def test_a_process_born_late_records_at_once_and_one_born_after_the_end_never(timers):
    capture = Capture()
    child._by_time(Plan(begin=990.0, end=1003.0), capture, None)
    assert capture.log == ["start"]
    assert [seconds for seconds, _ in timers] == [3]
    session.stop()
    late = Capture()
    child._by_time(Plan(begin=900.0, end=999.0), late, None)
    assert late.log == []


def test_a_window_is_chosen_unless_one_is_asked_for():
    def bounds(steps=None, delay=0, duration=None, whole=False):
        return Plan.of(steps, delay, duration, "auto", whole).bounds

    assert bounds() == bounds(delay=5) == CHOSEN
    assert bounds(steps="3:6") == bounds(duration=5) == EXACT
    assert bounds(whole=True) == WHOLE


@pytest.mark.parametrize("other", [{"steps": "1:2"}, {"duration": 3.0}])
def test_a_part_is_not_the_whole(other):
    with pytest.raises(ValueError, match="--whole cannot be combined"):
        Plan.of(**{"steps": None, "delay": 0, "duration": None} | other, backend="auto", whole=True)


def test_a_quick_exit_does_not_wait_for_a_thread_that_never_ends(monkeypatch):
    left = []
    monkeypatch.setattr(child.os, "_exit", left.append)
    monkeypatch.setattr(child, "QUICK_EXIT_S", 0.05)
    child._finish_at_quick_exits()
    held, over = threading.Event(), threading.Event()

    def end():
        with session._lock:
            held.set()
            over.wait()

    thread = threading.Thread(target=end)
    thread.start()
    held.wait()
    child.os._exit(3)
    over.set()
    thread.join()
    assert left == [3]


def test_steps_exclude_times():
    with pytest.raises(ValueError, match="cannot be combined"):
        Plan.of(steps="1:2", delay=1, duration=None, backend="auto")
