"""A step is slow by the median of the steps before it."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.capture.slow_steps import SlowSteps

MS = 1_000_000


def test_a_step_of_four_medians_is_slow_and_one_of_two_is_not() -> None:
    steps = SlowSteps(factor=3)
    assert not any(steps.is_slow(10 * MS) for _ in range(20))
    assert not steps.is_slow(20 * MS)
    assert steps.is_slow(40 * MS)
    assert not steps.is_slow(10 * MS)


def test_the_first_steps_are_never_slow() -> None:
    steps = SlowSteps(least=10)
    assert not any(steps.is_slow(10**number) for number in range(10))
    assert steps.median is not None


def test_a_short_step_is_not_slow_by_what_the_scheduler_takes() -> None:
    steps = SlowSteps()
    assert not any(steps.is_slow(100_000) for _ in range(20))
    assert not steps.is_slow(1 * MS)
    assert steps.is_slow(6 * MS)


def test_a_training_that_became_slower_is_not_slow_for_ever() -> None:
    steps = SlowSteps(of=11)
    for _ in range(20):
        steps.is_slow(10 * MS)
    slow = [steps.is_slow(50 * MS) for _ in range(20)]
    assert slow[0]
    assert sum(slow) == 6
    assert not any(slow[6:])


def test_a_factor_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 1 median"):
        SlowSteps(factor=1)
    with pytest.raises(ValueError, match="more than 1 median"):
        SlowSteps(factor=float("nan"))


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=80), st.integers(1, 20))
def test_the_median_is_that_of_the_last_steps(times: list[int], of: int) -> None:
    steps = SlowSteps(of=of, least=1, floor=0)
    for number, time in enumerate(times):
        before = times[max(0, number - of) : number]
        expected = bool(before) and time > 3 * statistics.median_high(before)
        assert steps.is_slow(time) == expected
    assert steps.median == statistics.median_high(times[-of:])
