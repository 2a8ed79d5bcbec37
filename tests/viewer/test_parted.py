"""Rows are divided among lanes as plain loops divide them."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from opscope.core.tables.pool import Pool
from opscope.viewer.timeline import parted as module
from opscope.viewer.timeline.parted import numbered, parted

far = st.sampled_from([-1, 0, 1, 7, 1 << 40, -(1 << 61)])
rows = st.lists(st.tuples(st.integers(-1, 3), far, st.integers(0, 70_000)), max_size=60)


@given(rows, st.booleans(), st.integers(1, 9))
def test_every_lane_has_its_rows_in_their_order(given_rows, one_process, piece) -> None:
    keys = [np.array(column, np.int64) for column in zip(*given_rows, strict=True)] or [
        np.zeros(0, np.int64)
    ] * 3
    if one_process:
        given_rows = [(4, *rest) for _, *rest in given_rows]
        keys[0] = 4
    expected: dict[tuple[int, ...], list[int]] = {}
    for place, row in enumerate(given_rows):
        expected.setdefault(row, []).append(place)
    many = len(given_rows)
    code, lanes = numbered(keys, many)
    assert lanes == sorted(expected)
    before = module._PIECE, module._PER_LANE
    module._PIECE, module._PER_LANE = piece, 1
    try:
        with Pool(2) as pool:
            places = np.arange(many, dtype=np.int32)
            found = parted(
                code,
                len(lanes),
                (np.int32, np.uint8),
                lambda low, high: (places[low:high], places[low:high].astype(np.uint8)),
                pool,
            )
    finally:
        module._PIECE, module._PER_LANE = before
    for key, (row, place, small) in zip(lanes, found, strict=True):
        assert row.tolist() == place.tolist() == small.tolist() == expected[key]
