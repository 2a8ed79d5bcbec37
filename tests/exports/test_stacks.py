"""Stacks: every interval is in one, none crosses another, and edges come in the order of a stack."""

from __future__ import annotations

from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.tables import intervals as module
from opscope.core.tables.intervals import apart, in_order, nest, windows
from opscope.exports.stacks import stacks

TIMES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=25)


@given(TIMES)
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
def test_stacks_made_part_by_part_are_those_of_all(spans, least):
    start = np.array([one for one, _ in spans], np.int64)
    end = start + np.array([took for _, took in spans], np.int64)
    rows = in_order(start, np.arange(len(start)))
    assert np.all(np.diff(start[rows]) >= 0)

    def nested(rows):
        """By level, each row with the row around it, in the order of their opening."""
        for stack in stacks(start[rows], end[rows]):
            yield [(rows[a], rows[b] if b >= 0 else -1) for a, b in zip(stack.rows, stack.around, strict=True)]  # fmt: skip

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


def edges_of(stack, part):
    """The row and kind of each edge of a part, in order, and the row around each that opens."""
    held = len(stack.rows) + len(stack.closing)
    edges: list = [None] * held
    for place, row in zip(stack.opens, stack.rows, strict=True):
        edges[place] = (int(part[row]), "opens")
    for place, row in zip(stack.closes, stack.closing, strict=True):
        edges[place] = (int(part[row]), "closes")
    around = {
        int(part[row]): int(part[one]) if one >= 0 else -1
        for row, one in zip(stack.rows, stack.around, strict=True)
    }
    return edges, around


#: Times that last long among them: something is open throughout.
LONG = st.lists(st.tuples(st.integers(0, 9), st.integers(20, 60)), max_size=4)


def together(spans, long):
    """Return start and end of both kinds of times, and their rows in order."""
    both = np.array([*spans, *long], np.int64).reshape(-1, 2)
    start, end = both[:, 0], both[:, 0] + both[:, 1]
    return start, end, in_order(start, np.arange(len(start)))


@given(TIMES, LONG, st.integers(1, 8))
def test_stacks_of_windows_in_which_something_is_open_are_those_of_all(spans, long, least):
    start, end, rows = together(spans, long)
    whole = [edges_of(stack, rows) for stack in stacks(start[rows], end[rows])]

    found: dict[int, tuple[list, dict]] = {}
    levels = np.empty(0, np.int64)
    with mock.patch.multiple(module, _APART=least, _LONG=1):
        parts = list(windows(start, end, rows))
    assert [at for one in parts for at in range(one.rows.start, one.rows.stop)] == list(
        range(len(rows))
    )
    for window in parts:
        part = np.concatenate((window.held, rows[window.rows]))
        on = np.concatenate((levels, np.full(len(part) - len(levels), -1)))
        for level, stack in enumerate(stacks(start[part], end[part], levels, window.until)):
            edges, around = edges_of(stack, part)
            on[stack.rows] = level
            held = found.setdefault(level, ([], {}))
            held[0].extend(edges)
            held[1].update(around)
        levels = on[:0] if window.until is None else on[end[part] > window.until]
    assert [found[level] for level in sorted(found)] == whole


@given(TIMES, LONG, st.integers(1, 8))
def test_what_is_around_an_interval_is_in_its_window(spans, long, least):
    start, end, rows = together(spans, long)

    def parents(part):
        tree = nest(start[part], end[part])
        placed = part[tree.order]
        return {
            int(row): int(placed[above]) if above >= 0 else -1
            for row, above in zip(placed, tree.parent, strict=True)
        }

    with mock.patch.multiple(module, _APART=least, _LONG=1):
        parts = list(windows(start, end, rows))
    found = {}
    for window in parts:
        mine = rows[window.rows]
        of = parents(np.concatenate((window.held, mine)))
        found.update({row: of[row] for row in mine.tolist() if row in of})
    assert found == parents(rows)


def test_a_window_is_cut_while_something_is_open(monkeypatch):
    monkeypatch.setattr(module, "_APART", 2)
    monkeypatch.setattr(module, "_LONG", 1)
    start = np.array([0, 1, 2, 3, 3, 4, 5])
    end = np.array([99, 2, 9, 4, 5, 5, 6])
    found = list(windows(start, end, np.arange(7)))
    assert [(one.rows.start, one.rows.stop, one.until) for one in found] == [
        (0, 2, 2), (2, 5, 4), (5, 7, None),
    ]  # fmt: skip
    assert [one.held.tolist() for one in found] == [[], [0], [0, 2, 4]]
