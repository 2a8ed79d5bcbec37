"""Sequences of kernels are compared as numbers: equal numbers for equal sequences, and for no others."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.device.op_sequences import _alike
from opscope.core.tables.columns import pairs

_SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=20), min_size=1, max_size=40)
#: Few numbers and far-apart ones: a table, one sort of packed numbers, and the sort of wide ones.
_NUMBERS = st.one_of(st.integers(0, 3), st.integers(0, 1 << 28), st.integers(-(1 << 40), 1 << 40))


@given(_SEQUENCES)
def test_sequences_have_equal_numbers_just_where_they_are_equal(sequences: list[list[int]]) -> None:
    codes = np.array([code for one in sequences for code in one], np.int32)
    number = _alike(codes, np.array([len(one) for one in sequences], np.int64)).tolist()
    texts = [tuple(one) for one in sequences]
    assert len(set(number)) == len(set(texts)) == len(set(zip(number, texts, strict=True)))


@given(st.lists(st.tuples(_NUMBERS, _NUMBERS), max_size=30))
def test_pairs_are_numbered_in_order_however_far_apart_they_are(
    rows: list[tuple[int, int]],
) -> None:
    left, right = np.array(rows, np.int64).reshape(-1, 2).T
    one, other, number = pairs(left, right)
    known = sorted(set(rows))
    assert list(zip(one.tolist(), other.tolist(), strict=True)) == known
    assert [known[place] for place in number.tolist()] == rows
