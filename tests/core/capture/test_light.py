"""Light mode's clock and spells: whose time a step's time is, and when steps are recorded in full."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opscope
from opscope.adapters.shared.compiled import BuildError, built
from opscope.backends import light_clock
from opscope.backends.light_clock import Library, NativeClock
from opscope.core.capture import light, light_spells, session
from opscope.core.capture.light import BACKWARD, COLLECTIVE, INPUT, Clock, LightClock
from opscope.core.capture.light_spells import PER_HOUR, Spells
from opscope.core.light_format import FIRST_PHASE, FORWARD, FULL, OPTIMIZER, STEP, TOOK
from opscope.core.light_summary import read_records


@pytest.fixture(scope="module")
def native() -> Library:
    """The clock in C, built with a time of its own, which the test sets."""
    try:
        return Library(built(light_clock.SOURCE, ("-DOPSCOPE_TEST",)))
    except BuildError as error:
        pytest.skip(str(error))


@pytest.fixture(params=["python", "native"])
def kind(request):
    return request.param


@pytest.fixture
def time(kind, monkeypatch, request):
    """The clock's time, which only the test moves (ns)."""
    now = [1_000]
    for module in (light, light_spells):
        monkeypatch.setattr(module, "perf_counter_ns", lambda: now[0])
    tell = tells_time(request.getfixturevalue("native")) if kind == "native" else lambda ns: None
    tell(now[0])

    def passes(ns: int) -> None:
        now[0] += ns
        tell(now[0])

    return passes


def tells_time(native: Library):
    return lambda ns: native.call.opscope_light_time(ctypes.c_int64(ns))


@pytest.fixture
def clock(kind, request):
    made = NativeClock(request.getfixturevalue("native")) if kind == "native" else LightClock()
    yield made
    session.stop()
    session.leave_step()
    session.measure_steps(None)


def rows(clock: Clock) -> np.ndarray:
    """The steps that ended since the last call."""
    return read_records(clock.take())


def phases(row: np.ndarray) -> dict[int, int]:
    found = {place: int(ns) for place, ns in enumerate(row[FIRST_PHASE:]) if ns}
    rest = int(row[TOOK] - row[FIRST_PHASE:].sum())
    return found | ({-1: rest} if rest else {})


def test_each_moment_of_a_step_belongs_to_one_phase(clock, time):
    clock.begins(7)
    time(1)  # before the loader: other
    before = clock.enter(INPUT)
    time(10)
    clock.leave(before)
    time(100)  # the forward pass, which nothing hooks
    before = clock.enter(BACKWARD)
    time(400)
    inner = clock.enter(COLLECTIVE)
    time(50)
    clock.leave(inner)
    time(600)
    clock.leave(before)
    time(2)  # clipping of gradients: other
    clock.optimizes()
    time(10_000)
    clock.optimized()
    clock.turns(8)
    time(5)
    clock.ends()
    first, second = rows(clock)
    assert tuple(first[1:4]) == (STEP, 7, 1_000)
    assert phases(first) == {
        INPUT: 10,
        FORWARD: 100,
        BACKWARD: 1_000,
        OPTIMIZER: 10_000,
        COLLECTIVE: 50,
        -1: 3,
    }
    assert phases(second) == {-1: 5}


def test_the_forward_pass_of_an_optimizers_closure_is_no_work_of_the_optimizer(clock, time):
    clock.begins(0)
    clock.optimizes()
    time(100)  # the closure's forward pass
    before = clock.enter(BACKWARD)
    time(20)
    clock.leave(before)
    time(3)
    clock.optimized()
    clock.turns(1)
    (row,) = rows(clock)
    assert phases(row) == {FORWARD: 100, BACKWARD: 20, OPTIMIZER: 3}


def test_another_threads_phases_and_steps_are_not_the_trainings(clock, time):
    clock.begins(0)

    def elsewhere() -> None:
        before = clock.enter(INPUT)
        time(100)
        clock.leave(before)
        clock.turns(99)
        clock.ends()
        clock.left()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    clock.ends()
    (row,) = rows(clock)
    assert phases(row) == {-1: 100}


def test_a_thread_that_has_ended_is_followed_by_the_next_that_has_steps(clock, time):
    def trains() -> None:
        clock.begins(0)
        time(1)
        clock.turns(1)

    for _ in range(2):
        thread = threading.Thread(target=trains)
        thread.start()
        thread.join()
    assert len(rows(clock)) == 2


def test_a_step_that_is_left_is_not_counted_and_the_next_is(clock, time):
    session.measure_steps(clock)
    session.begin_step(3)
    session.leave_step()
    time(5)
    session.begin_step(4)
    time(6)
    session.end_step()
    assert [tuple(row[[2, TOOK]]) for row in rows(clock)] == [(4, 6)]


def test_the_wait_for_a_batch_between_two_steps_is_the_next_steps(clock, time):
    session.measure_steps(clock)
    session.step_comes(0)
    for number in range(2):
        before = clock.enter(INPUT)
        time(100)
        clock.leave(before)
        session.begin_step(number)
        time(10)
        session.end_step()
        time(1)  # the callbacks at the end of a step
    session.no_step_comes()
    time(1_000)  # an evaluation
    session.begin_step(2)
    time(10)
    session.end_step()
    found = rows(clock)
    assert [int(row[2]) for row in found] == [0, 1, 2]
    assert [phases(row) for row in found] == [{INPUT: 100, -1: 10}, {INPUT: 100, -1: 11}, {-1: 10}]


@pytest.mark.parametrize("aside", [session.between_steps, session.set_up])
@pytest.mark.parametrize("ahead", [True, False])
def test_what_is_no_training_is_in_no_step_be_it_between_two_or_in_one(clock, time, aside, ahead):
    session.measure_steps(clock)
    session.begin_step(0)
    time(10)
    if ahead:
        session.end_step()
    with aside():
        time(1_000)
    if ahead:
        session.begin_step(1)
    time(20)
    session.end_step()
    taken = [tuple(row[[2, TOOK]]) for row in rows(clock)]
    assert taken == ([(0, 10), (1, 20)] if ahead else [(0, 20)])


def test_a_step_that_the_user_counts_after_others_begins_where_it_is_called(clock, time):
    session.measure_steps(clock)
    session.begin_step(0)
    time(10)
    session.end_step()
    time(5)
    assert session.step() == 1
    time(7)
    session.step()
    assert [tuple(row[[2, TOOK]]) for row in rows(clock)] == [(0, 10), (1, 12)]


def test_the_users_steps_are_measured_back_to_back_and_keep_their_numbers(clock, time):
    session.measure_steps(clock)
    session.begin_step(0)
    for _ in range(3):
        time(10)
        session.step()
    assert [tuple(row[[2, TOOK]]) for row in rows(clock)] == [(0, 10), (1, 10), (2, 10)]


def test_a_block_is_a_step_from_begin_to_end_and_the_last_counts_but_not_one_that_fails(
    clock, time
):
    session.measure_steps(clock)
    for number in range(3):
        with opscope.step_block(number) as step:
            assert step == number
            time(10)
        time(1_000)  # an evaluation
    with pytest.raises(ZeroDivisionError), opscope.step_block():
        time(1 // 0)
    time(1_000)
    assert [tuple(row[[2, TOOK]]) for row in rows(clock)] == [(0, 10), (1, 10), (2, 10)]


def test_a_step_in_which_a_capture_runs_is_marked_from_end_to_end(clock):
    clock.begins(0)
    clock.full = True
    clock.turns(1)
    clock.full = False
    clock.turns(2)
    clock.turns(3)
    assert [int(row[1]) for row in rows(clock)] == [FULL, FULL, STEP]


def test_records_are_taken_once_and_beyond_a_bound_they_are_dropped_and_counted(
    clock, time, monkeypatch
):
    monkeypatch.setattr(light, "MAX_WAITING", 1 << 16)
    clock.begins(0)
    for number in range(1, 20):
        clock.turns(number)
    assert [int(row[2]) for row in rows(clock)] == list(range(19))
    assert len(rows(clock)) == 0
    many = 300_000  # more than 16 MiB of them
    for number in range(many):
        clock.turns(number)
    assert len(rows(clock)) + clock.dropped == many
    assert clock.dropped > 0


def test_a_steps_number_of_any_size_reaches_no_program(clock, time):
    clock.begins(10**30)
    for number in (-(10**30), 5, 6):
        clock.turns(number)
    assert [int(row[2]) for row in rows(clock)] == [(1 << 63) - 1, -(1 << 63), 5]


def test_a_forked_childs_clock_begins_anew(clock, time):
    clock.begins(0)
    clock.turns(1)
    clock.full, clock.limit = True, 5
    clock.after_fork()
    clock.begins(7)
    time(10)
    clock.turns(8)
    assert [tuple(row[[0, 1, 2, TOOK]]) for row in rows(clock)] == [(0, STEP, 7, 10)]
    assert (clock.full, clock.limit, clock.cost.count) == (False, light.NEVER, 1)


def test_what_leads_from_the_optimizers_hook_to_the_steps_turn_is_its_own_cost(clock, time):
    clock.begins(0)
    clock.optimizes()
    time(100)
    clock.optimized()
    time(7)  # opscope counts the step
    clock.turns_after(1)
    assert (clock.cost.total, clock.measured_turns) == (7, 0)
    clock.optimizes()
    clock.optimized()
    time(1_000)  # the program's own work, until it or its framework counts the step
    clock.turns(2)
    assert (clock.cost.total, clock.measured_turns) == (7, 1)
    clock.optimizes()
    clock.optimized()
    clock.leave(clock.enter(INPUT))
    time(1_000)  # another optimizer's step ends the training step
    clock.turns_after(3)
    assert (clock.cost.total, clock.measured_turns) == (7, 2)


def test_a_step_that_lost_its_processor_within_a_hook_says_nothing_of_what_hooks_cost():
    cost = light.Cost()
    assert cost.middle() is None
    for ns in [1_000, 1_100] * 500 + [10_000_000] * 100:
        cost.add(ns)
    found, error = cost.middle()
    assert 1_000 <= found <= 1_100
    assert error <= 100
    assert len(cost.recent) == light.KEPT


def test_a_watch_that_raises_does_not_reach_the_program(native):
    class Raises:
        def slow(self, took: int) -> None:
            raise RuntimeError("our fault")

        def usual(self) -> None: ...

    seen = []
    clock, tell = NativeClock(native), tells_time(native)
    clock.watch, clock.limit = Raises(), 5
    tell(0)
    clock.begins(0)
    tell(10)
    hook, sys.unraisablehook = sys.unraisablehook, lambda told: seen.append(str(told.exc_value))
    try:
        clock.turns(1)
    finally:
        sys.unraisablehook = hook
    assert seen == ["our fault"]
    assert len(rows(clock)) == 1


def test_a_native_clock_is_freed_and_its_functions_may_outlive_it(native):
    clock = NativeClock(native)
    gone, turns, take = weakref.ref(clock), clock.turns, clock.take
    del clock
    gc.collect()
    assert gone() is None
    turns(0)  # no thread is measured any more
    assert take() == b""


def test_without_a_compiler_or_by_choice_the_clock_is_pythons(monkeypatch, caplog):
    def fails(*args: object, **kwargs: object) -> None:
        raise BuildError("no C compiler found")

    monkeypatch.setattr(light_clock, "built", fails)
    monkeypatch.setenv(light_clock.VARIABLE, "python")
    assert isinstance(light_clock.make(), LightClock)
    assert not caplog.text
    monkeypatch.setenv(light_clock.VARIABLE, "native")
    assert isinstance(light_clock.make(), LightClock)
    assert "no C compiler found" in caplog.text


#: What a program and its hooks may do: the name of a clock's method, a phase or a number for it, and the
#: time before it.
_DEEDS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "enter",
                "leave",
                "optimizes",
                "optimized",
                "turns",
                "turns_after",
                "begins",
                "ends",
                "left",
                "full",
                "named",
            ]
        ),
        st.sampled_from([INPUT, BACKWARD, OPTIMIZER, COLLECTIVE]),
        st.integers(0, 10**12),
    ),
    max_size=60,
)


@given(deeds=_DEEDS, turns=st.integers(0, 80))
def test_both_clocks_say_the_same_of_any_program(native, deeds, turns):
    tell, now = tells_time(native), [0]
    one, other = LightClock(), NativeClock(native)
    told: dict[str, list[object]] = {"one": [], "other": []}

    class Watches:
        def __init__(self, into: list[object]) -> None:
            self.into = into

        def slow(self, took: int) -> None:
            self.into.append(took)

        def usual(self) -> None:
            self.into.append("usual")

    one.watch, other.watch = Watches(told["one"]), Watches(told["other"])
    one.limit = other.limit = 10**11
    tell(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(light, "perf_counter_ns", lambda: now[0])
        before: list[int] = []
        for number in range(turns):  # the first steps measure themselves
            one.turns(number), other.turns(number)
        for name, phase, ns in deeds:
            now[0] += ns
            tell(now[0])
            if name == "enter":
                before.append(one.enter(phase))
                assert other.enter(phase) == before[-1]
            elif name == "leave":
                back = before.pop() if before else light.AWAY
                one.leave(back), other.leave(back)
            elif name == "full":
                one.full = other.full = not one.full
            elif name in ("turns", "turns_after", "begins", "named"):
                getattr(one, name)(ns), getattr(other, name)(ns)
            else:
                getattr(one, name)(), getattr(other, name)()
            assert one.here() == other.here()
    assert rows(one).tolist() == rows(other).tolist()
    assert told["one"] == told["other"]
    costs = [
        (
            made.cost.count,
            made.cost.total,
            made.cost.recent,
            made.measured_calls,
            made.measured_turns,
        )
        for made in (one, other)
    ]
    assert costs[0] == costs[1]


class Recording:
    """Stands for a capture, and counts."""

    begun = ended = 0

    def warmup(self) -> None: ...

    def start(self) -> None:
        Recording.begun += 1

    def stop(self) -> None:
        Recording.ended += 1


@pytest.fixture
def training(clock, time, monkeypatch):
    """Runs steps of given lengths under light mode, as a program that calls ``opscope.step``."""
    monkeypatch.setattr(Recording, "begun", 0)
    monkeypatch.setattr(Recording, "ended", 0)

    def run(spells: Spells, *took: int) -> None:
        for ns in took:
            time(ns)
            session.step()
        spells.learn(rows(clock)[:, TOOK])

    session.measure_steps(clock)
    session.begin_step(0)
    return run


MS = 1_000_000
USUAL = [10 * MS] * 40
SLOW = [60 * MS] * 4


def test_a_slow_spell_is_recorded_for_a_few_steps(clock, training):
    spells = Spells(clock, Recording, steps=3)
    training(spells, *USUAL)
    training(spells, *SLOW)
    assert (spells.seen, Recording.begun, Recording.ended) == (1, 1, 0)
    training(spells, 10 * MS, 10 * MS, 10 * MS)
    assert Recording.ended == 1
    assert spells.recorded[0]["slow_steps"] == 3
    training(spells, *USUAL)
    assert (Recording.begun, clock.due) == (1, False)


def test_one_slow_step_is_no_spell_and_neither_are_steps_that_lose_little(clock, training):
    spells = Spells(clock, Recording)
    training(spells, *USUAL)
    training(
        spells, 900 * MS, 10 * MS, 900 * MS, 10 * MS, 16 * MS, 16 * MS, 16 * MS, 16 * MS, 10 * MS
    )
    assert (spells.seen, Recording.begun) == (0, 0)


def test_three_spells_an_hour_are_recorded_and_more_after_it(clock, training, time):
    spells = Spells(clock, Recording, steps=1)
    for _ in range(PER_HOUR + 2):
        training(spells, *USUAL)
        training(spells, *SLOW)
    assert (spells.seen, Recording.begun) == (PER_HOUR + 2, PER_HOUR)
    assert spells.not_recorded == {"3 spells had been recorded within the hour": 2}
    training(spells, *USUAL)
    time(3_600_000 * MS)
    session.step()
    training(spells, *USUAL, *USUAL)
    training(spells, *SLOW)
    assert Recording.begun == PER_HOUR + 1


def test_no_spell_is_recorded_where_the_user_said_no(clock, training):
    spells = Spells(clock, None)
    training(spells, *USUAL)
    training(spells, *SLOW)
    assert (spells.seen, Recording.begun) == (1, 0)
    assert spells.not_recorded == {"the user said no": 1}


def test_no_spell_is_recorded_while_the_program_records_itself(clock, training):
    spells = Spells(clock, Recording)
    training(spells, *USUAL)
    session.start(Recording())
    training(spells, *SLOW)
    session.stop()
    assert Recording.begun == 1
    assert spells.not_recorded == {"another capture ran": 1}


def test_a_spell_that_cannot_be_recorded_does_not_reach_the_program(clock, training, caplog):
    class Refuses(Recording):
        def start(self) -> None:
            raise OSError("no room")

    spells = Spells(clock, Refuses)
    training(spells, *USUAL)
    training(spells, *SLOW)
    assert spells.not_recorded == {"no room": 1}
    assert "no room" in caplog.text
    training(spells, *USUAL)
    assert clock.due is False
