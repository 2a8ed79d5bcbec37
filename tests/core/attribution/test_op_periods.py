"""What repeats in a sequence of ops is found, wherever it begins; what does not repeat is not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from opscope.core.attribution import op_periods
from opscope.core.attribution.op_periods import Period, period


def found(sequence, named=(), graph=None) -> Period | str:
    symbol = np.array(sequence)
    start = 10 * np.arange(len(symbol))
    tells = np.zeros(int(symbol.max()) + 1, bool)
    tells[list(named)] = True
    return period(symbol, start, start + 5, tells, graph)


def begins(one: Period) -> list[int]:
    """The places in the sequence at which iterations begin, and the one after the last."""
    return [*(one.bounds[:-1] // 10).tolist(), int(one.bounds[-1] // 10 + 1)]


STEP = [1, 2, 3, 2, 4]


@given(
    body=st.lists(st.integers(0, 30), min_size=2, max_size=30),
    many=st.integers(3, 12),
    before=st.integers(0, 20),
    after=st.integers(0, 5),
)
def test_a_sequence_that_repeats_is_found_after_whatever_warms_up(body, many, before, after):
    assume(any(body.count(one) == 1 for one in body))  # what occurs once in each
    assume(len(body) * many >= 2 * (before + after))
    prefix, suffix = [*range(40, 40 + before)], [*range(90, 90 + after)]
    one = found(prefix + body * many + suffix)
    assert isinstance(one, Period)
    wanted = [before + n * len(body) for n in range(many + 1)]
    assert begins(one) == wanted
    assert one.many == len(body)


@given(st.integers(0, 10_000), st.integers(5, 40), st.integers(60, 400))
def test_a_random_sequence_does_not_repeat(seed, kinds, length):
    sequence = np.random.default_rng(seed).integers(0, kinds, length)
    assert found(sequence) == op_periods.NOT_PERIODIC


@pytest.mark.parametrize(
    ("sequence", "why"),
    [
        (STEP, op_periods.TOO_FEW),
        (STEP * 2, op_periods.NOT_PERIODIC),
        ([7] * 40, op_periods.ONE_OP),
        ([1, 2, 3, 4] * 3 + list(range(10, 60)), op_periods.NOT_PERIODIC),  # a small part repeats
    ],
)
def test_why_nothing_repeats_is_said(sequence, why):
    assert found(sequence) == why


def test_the_layers_of_one_pass_cannot_be_told_from_iterations_so_they_are_in_doubt():
    one = found([8, *STEP * 12, 9])
    assert (len(one.bounds) - 1, one.doubt) == (12, op_periods.BY_ORDER)
    assert one.confidence < 0.61


def test_of_layers_in_iterations_the_iterations_are_found():
    one = found([8, *STEP * 12, 9] * 6)
    assert (len(one.bounds) - 1, one.many) == (6, 62)


def test_texts_that_name_places_are_sure_from_four_iterations_on():
    sure = [found(STEP * many, named=(1, 2, 3, 4)).confidence for many in (3, 4, 20)]
    assert sure == pytest.approx([0.75, 0.875, 1.0], abs=1e-5)
    assert found(STEP * 20, named=(1,)).doubt is None


def test_an_iteration_that_differs_every_so_often_is_one_still_and_takes_from_the_confidence():
    steps = [step for n in range(40) for step in ([*STEP, 9] if n % 20 == 19 else STEP)]
    one = found(steps, named=(1, 2, 3, 4))
    assert len(one.bounds) - 1 == 40
    assert 0.94 < one.confidence < 1


def test_where_a_longer_period_fits_too_it_is_in_doubt():
    """Twenty forward and backward passes, then an update; an evaluation every so often looks the same."""
    one = found([*STEP * 20, 9] * 5, named=(1, 2, 3, 4, 9))
    assert (len(one.bounds) - 1, one.doubt) == (100, op_periods.LONGER)
    assert one.confidence < 0.81


def test_a_loop_in_a_run_of_a_graph_is_no_iteration():
    graph = np.array([-1, 0, 0, 0, 0])
    one = found([1, *[2, 3] * 20, 4], named=(1, 2, 3, 4), graph=graph)
    assert one.doubt == op_periods.BY_ORDER
    runs = found([1, *[2, 3] * 20, 4] * 6, named=(1, 2, 3, 4), graph=graph)
    assert (len(runs.bounds) - 1, runs.doubt) == (6, None)


def test_an_iteration_that_differs_at_first_is_one_of_the_loop():
    one = found([8, 8, 1, 9, 2, 9, 3, 2, 4, *STEP * 8])
    assert begins(one) == [2, *range(9, 50, 5)]


@pytest.mark.parametrize(("first", "there"), [(4, True), (7, False)])
def test_up_to_a_third_of_the_iterations_may_differ_at_first(first, there):
    one = found([*(place for n in range(first) for place in (*STEP, 10 + n)), *STEP * 12])
    assert isinstance(one, Period) == there
    if there:
        assert len(one.bounds) - 1 == first + 12
