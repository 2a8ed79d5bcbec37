"""The interval passes against brute force on every small case that Hypothesis finds."""

from __future__ import annotations

import itertools
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.tables import columns, intervals

TIMES = st.integers(0, 30)
SPANS = st.lists(st.tuples(TIMES, TIMES).map(sorted), max_size=25)


def arrays(spans: list) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(spans, np.int64).reshape(-1, 2)
    return both[:, 0].copy(), both[:, 1].copy()


@given(SPANS, st.lists(TIMES, max_size=20))
def test_innermost_is_the_latest_start_that_holds_the_time(spans, times):
    start, end = arrays(spans)
    found = intervals.nest(start, end).innermost(np.array(times, np.int64))
    for time, row in zip(times, found, strict=True):
        holding = [i for i in range(len(spans)) if start[i] <= time < end[i]]
        # of equal starts the one that ends first is the inner one, of equal intervals the later row
        best = max(holding, key=lambda i: (start[i], -end[i], i), default=-1)
        assert row == best


@given(SPANS)
def test_parent_is_the_latest_start_that_contains(spans):
    start, end = arrays(spans)
    nest = intervals.nest(start, end)
    for place in range(len(nest.order)):
        containing = [p for p in range(place) if nest.end[p] >= nest.end[place]]
        assert nest.parent[place] == (containing[-1] if containing else -1)


@given(st.lists(st.integers(-1, 20), max_size=20), st.data())
def test_nearest_and_depth_walk_up_the_forest(raw, data):
    parent = np.array([min(p, i - 1) for i, p in enumerate(raw)], np.int64)
    wanted = np.array([data.draw(st.booleans()) for _ in raw], bool)
    near, depth = intervals.nearest(parent, wanted), intervals.depth(parent)
    for node in range(len(raw)):
        at, levels = node, 0
        while at >= 0 and not wanted[at]:
            at = parent[at]
        assert near[node] == at
        at = parent[node]
        while at >= 0:
            at, levels = parent[at], levels + 1
        assert depth[node] == levels


def covered(spans: list) -> set[int]:
    return {t for start, end in spans for t in range(start, end)}


def cells(spans: tuple[np.ndarray, np.ndarray]) -> set[int]:
    pairs = list(zip(*spans, strict=True))
    assert all(start < end for start, end in pairs)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(pairs))
    return covered(pairs)


@given(SPANS, SPANS, TIMES, TIMES)
def test_set_algebra(a, b, low, high):
    left, right = intervals.merge(*arrays(a)), intervals.merge(*arrays(b))
    assert cells(left) == covered(a)
    assert intervals.union_length(*arrays(a)) == len(covered(a))
    assert cells(intervals.intersect(left, right)) == covered(a) & covered(b)
    assert cells(intervals.subtract(left, right)) == covered(a) - covered(b)
    assert cells(intervals.clip(left, low, high)) == covered(a) & set(range(low, high))


@given(SPANS, st.integers(1, 4))
def test_the_union_s_length_is_that_of_its_parts_whatever_the_pieces(spans, piece):
    start, end = arrays(spans)
    with mock.patch.object(columns, "PIECE", piece):
        assert intervals.union_length(start, end) == len(covered(spans))
