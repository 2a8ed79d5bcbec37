"""Threads as Kineto numbers them: found by the absolute value; of two under one number the right one, or none."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.tables.clockfit import ClockFit
from opscope.core.tables.trace import Trace
from opscope.readers.recording.kineto_threads import numbers, unseen, with_os_threads
from tests.kineto_writer import INT_MIN, sanitize_tid, signed32

HIGH, LOW = 0x7F3B_E1D0_D9C0, 0x7F3B_61D0_D9C0
NO_CLOCK = ClockFit(0, 0, 0.0, 0, 0, 0)
MET = pl.DataFrame(schema={"number": pl.Int64, "thread": pl.Int64})


def ranges(threads: dict[int, int], spans: dict[int, tuple[int, int]] | None = None) -> Trace:
    """A recorder's part: {system's id: pthread id}, and from when to when each has ranges."""
    spans = spans or {}
    return Trace.of(
        {
            "threads": pl.DataFrame(
                {
                    "process": [0] * len(threads),
                    "thread": list(threads),
                    "os_tid": list(threads),
                    "pthread_id": list(threads.values()),
                }
            ),
            "ranges": pl.DataFrame(
                {
                    "id": range(len(spans)),
                    "thread": list(spans),
                    "start": [first for first, _ in spans.values()],
                    "end": [last for _, last in spans.values()],
                },
                schema_overrides={"thread": pl.Int64, "start": pl.Int64, "end": pl.Int64},
            ),
        }
    )


def calls(*rows: tuple[int, int]) -> pl.DataFrame:
    """Calls: the thread as written, the start."""
    frame = pl.DataFrame(rows, schema=["thread", "start"], orient="row")
    return frame.with_columns(end=pl.col("start") + 5)


def found(made: pl.DataFrame, part: Trace, clock: ClockFit = NO_CLOCK, met: pl.DataFrame = MET):
    named, unclear = with_os_threads(made, part, clock, met)
    return named["thread"].to_list(), unclear


@pytest.mark.parametrize("pthread", [HIGH, LOW])
@pytest.mark.parametrize("written", [sanitize_tid, signed32, lambda p: p & 0xFFFFFFFF, lambda p: p])
def test_a_thread_is_known_however_kineto_wrote_it(pthread: int, written) -> None:
    part = ranges({4321: pthread, 4322: 0x7F3B_2222_2000})
    assert found(calls((written(pthread), 10)), part) == ([4321], 0)


def test_what_kineto_writes_of_the_smallest_number_is_known_too() -> None:
    assert signed32(0x7F3B_8000_0000) == INT_MIN
    assert found(calls((0, 10)), ranges({4321: 0x7F3B_8000_0000})) == ([4321], 0)


def test_the_systems_own_id_stays() -> None:
    assert found(calls((4321, 10)), ranges({4321: HIGH})) == ([4321], 0)


def test_a_number_that_no_thread_has_stays_and_is_a_thread_of_its_own() -> None:
    part = ranges({4321: HIGH})
    named, unclear = with_os_threads(calls((77_777_777, 10)), part, NO_CLOCK, MET)
    assert (named["thread"].to_list(), unclear) == ([77_777_777], 0)
    assert unseen(named, part["threads"])["thread"].to_list() == [77_777_777]


def test_of_two_threads_under_one_number_that_live_at_once_none_is_taken() -> None:
    mirrored = (0x7F3A << 32) | (-HIGH & 0xFFFFFFFF)
    assert sanitize_tid(mirrored) == sanitize_tid(HIGH)
    part = ranges({1: HIGH, 2: mirrored}, {1: (0, 100), 2: (50, 150)})
    made = calls(*((sanitize_tid(HIGH), time) for time in (20, 70, 120)))
    assert found(made, part) == ([1, None, 2], 1)


def test_a_thread_that_got_the_pthread_id_of_one_that_ended_is_told_by_the_time() -> None:
    part = ranges({1: HIGH, 2: HIGH, 3: HIGH}, {1: (0, 100), 2: (200, 300), 3: (400, 500)})
    made = calls(*((sanitize_tid(HIGH), time) for time in (0, 99, 200, 299, 450, 350)))
    assert found(made, part) == ([1, 1, 2, 2, 3, None], 1)
    ahead = ClockFit(0, -1_000, 0.0, 0, 0, 0)
    assert found(made.with_columns(pl.col("start") + 1_000), part, ahead)[0][:3] == [1, 1, 2]
    unsure = ClockFit(0, 0, 0.0, 120, 0, 0)
    assert found(made, part, unsure)[0][1] is None, "the clock is not good enough to tell"


def test_calls_of_ours_tell_a_thread_whose_number_nothing_else_does() -> None:
    met = pl.DataFrame({"number": [987_654_321], "thread": [4321]})
    assert found(calls((987_654_321, 10)), ranges({4321: HIGH}), met=met) == ([4321], 0)


pthreads = st.integers(1 << 32, (1 << 47) - 1).map(lambda n: n & ~0xF)


@given(st.lists(pthreads, min_size=1, max_size=6, unique=True))
def test_a_thread_is_the_right_one_or_unknown(of: list[int]) -> None:
    threads = dict(enumerate(of, 10_000_000_000))  # of the system, and no number of Kineto's
    part = ranges(threads, dict.fromkeys(threads, (0, 1_000)))
    made = calls(*((sanitize_tid(pthread), 500) for pthread in of))
    named, unclear = found(made, part)
    assert all(mine in (None, thread) for mine, thread in zip(named, threads, strict=True))
    assert named.count(None) == unclear
    if numbers(part["threads"]).group_by("number").len()["len"].max() == 1:
        assert None not in named
