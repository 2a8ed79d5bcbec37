"""An op's cost split over its kernels sums to the op's, whatever the durations."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.ops.costs import Shares, Sharing
from opscope.core.tables import columns

ROWS = st.lists(st.tuples(st.integers(-1, 4), st.integers(0, 10**9)), max_size=30)
TOTALS = st.lists(st.none() | st.integers(0, 10**15), min_size=5, max_size=5)


@given(ROWS, TOTALS)
def test_the_parts_of_a_group_sum_to_its_total(rows, totals):
    group = np.array([g for g, _ in rows], np.int64)
    duration = np.array([d for _, d in rows], np.int64)
    total = pl.Series("flops", [totals[g] if g >= 0 else None for g in group], dtype=pl.Int64)
    parts = Sharing(group, duration).split(total).to_list()
    for number in range(5):
        mine = [part for part, g in zip(parts, group, strict=True) if g == number]
        if mine and totals[number] is not None:
            assert sum(mine) == totals[number]
            assert min(mine) >= 0
        else:
            assert mine == [None] * len(mine)
    assert all(part is None for part, g in zip(parts, group, strict=True) if g < 0)


def test_longer_kernels_get_more():
    split = Sharing(np.array([0, 0, 1]), np.array([10, 30, 5])).split(pl.Series("f", [400, 400, 7]))
    assert split.to_list() == [100, 300, 7]


@given(ROWS, TOTALS, st.lists(st.integers(0, 29), max_size=12), st.integers(1, 7))
def test_some_rows_get_what_they_get_of_all(rows, totals, some, piece):
    group = np.array([g for g, _ in rows], np.int32)
    duration = np.array([d for _, d in rows], np.int64)
    total = pl.Series("flops", [totals[g] if g >= 0 else None for g in group], dtype=pl.Int64)
    whole = Sharing(group, duration).split(total.clone())
    asked = np.array([one for one in some if one < len(rows)], np.int64)
    start = pl.Series(np.arange(len(rows)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "PIECE", piece)
        shares = Shares(group, start, start + pl.Series(duration))
    part = total.gather(asked)
    assert shares.split(asked, part).to_list() == whole.gather(asked).to_list()
    assert part.to_list() == total.gather(asked).to_list()
