"""Stacks: every interval is in one, none crosses another, and edges come in the order of a stack."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.exports.stacks import stacks

TIMES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=25)


@given(TIMES)
@settings(deadline=None)
def test_stacks_open_and_close_as_a_stack_does(spans):
    start = np.array([one for one, _ in spans], np.int64)
    end = start + np.array([took for _, took in spans], np.int64)
    seen = []
    for stack in stacks(start, end):
        many = len(stack.rows)
        seen += stack.rows.tolist()
        edges = sorted(
            [(place, row, True) for place, row in zip(stack.opens, stack.rows, strict=True)]
            + [(place, row, False) for place, row in zip(stack.closes, stack.rows, strict=True)]
        )
        assert [place for place, _, _ in edges] == list(range(2 * many))
        open_rows, last = [], -1
        for _, row, opens in edges:
            time = start[row] if opens else end[row]
            assert time >= last
            last = time
            if opens:
                open_rows.append(row)
            else:
                assert open_rows.pop() == row
        assert not open_rows
    assert sorted(seen) == np.flatnonzero(end > start).tolist()


def test_more_crossings_than_stacks_are_told_apart_all_the_same():
    start = np.arange(400, dtype=np.int64)
    end = start + 1000
    assert sum(len(one.rows) for one in stacks(start, end)) == 400
    assert sum(1 for _ in stacks(start, end)) == 400


def test_intervals_that_nest_are_one_stack():
    (stack,) = stacks(np.array([0, 0, 5, 5]), np.array([10, 5, 10, 7]))
    assert stack.rows.tolist() == [0, 1, 2, 3]
    assert stack.opens.tolist() == [0, 1, 3, 4]
    assert stack.closes.tolist() == [7, 2, 6, 5]
