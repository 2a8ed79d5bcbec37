"""Stacks: every interval is in one, none crosses another, and edges come in the order of a stack."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.core.tables import intervals as module
from opscope.core.tables.intervals import apart, in_order
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


@given(TIMES, st.integers(1, 8))
@settings(deadline=None)
def test_stacks_made_part_by_part_are_those_of_all(spans, least):
    start = np.array([one for one, _ in spans], np.int64)
    end = start + np.array([took for _, took in spans], np.int64)
    rows = in_order(start, np.arange(len(start)))
    assert np.all(np.diff(start[rows]) >= 0)

    def nested(rows):
        """By level, each row with the row around it, in the order of their opening."""
        for stack in stacks(start[rows], end[rows]):
            around = np.where(stack.around >= 0, stack.rows[stack.around], -1)
            yield [(rows[a], rows[b] if b >= 0 else -1) for a, b in zip(stack.rows, around, strict=True)]  # fmt: skip

    whole = list(nested(rows))
    pieced: dict[int, list] = {}
    held = module._APART
    module._APART = least
    try:
        parts = list(apart(start, end, rows))
    finally:
        module._APART = held
    assert [at for part in parts for at in range(part.start, part.stop)] == list(range(len(rows)))
    for part in parts:
        for level, found in enumerate(nested(rows[part])):
            pieced.setdefault(level, []).extend(found)
    assert [pieced[level] for level in sorted(pieced)] == whole


def test_parts_end_where_nothing_is_open(monkeypatch):
    monkeypatch.setattr(module, "_APART", 2)
    start, end = np.array([0, 1, 5, 6, 7, 9, 9]), np.array([4, 3, 6, 8, 9, 9, 12])
    found = [(one.start, one.stop) for one in apart(start, end, np.arange(7))]
    assert found == [(0, 2), (2, 5), (5, 7)]
    assert [(one.start, one.stop) for one in apart(start, np.full(7, 99), np.arange(7))] == [(0, 7)]
