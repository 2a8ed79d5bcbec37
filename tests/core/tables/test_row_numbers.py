"""Numbers of rows: equal rows have equal numbers, whatever the values, pieces and tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.tables import row_numbers

_VALUE = st.one_of(st.integers(-1, 4), st.integers(-1, 3000))
_PIECES = st.lists(st.lists(st.tuples(_VALUE, _VALUE, _VALUE), max_size=12), max_size=6)


@pytest.mark.parametrize("most", [1 << 24, 4000, 1])
def test_equal_rows_have_equal_numbers_and_others_have_not(most, monkeypatch):
    monkeypatch.setattr(row_numbers, "_MOST", most)

    @given(_PIECES)
    def law(parts):
        numbers = row_numbers.Numbering(3)
        seen = {}
        for part in parts:
            columns = np.array(part, np.int64).reshape(-1, 3).T
            for row, number in zip(part, numbers.of(*columns).tolist(), strict=True):
                assert seen.setdefault(row, number) == number
        assert sorted(seen.values()) == list(range(numbers.many)) == list(range(len(seen)))

    law()


def test_numbers_are_far_beyond_any_table():
    """Two columns of a hundred thousand values each have more pairs than memory has places."""
    random = np.random.default_rng(3)
    numbers = row_numbers.Numbering(2)
    left, right = random.integers(0, 100_000, (2, 20_000))
    first = numbers.of(left, right)
    assert numbers.many == len(np.unique(left * 100_000 + right))
    assert (numbers.of(left[::-1], right[::-1])[::-1] == first).all()
