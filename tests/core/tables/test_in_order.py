"""Rows are put in order piece by piece as one stable sort puts them, however far they are from their place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.tables import columns, mapped
from opscope.core.tables.columns import LookUp, combined
from opscope.core.tables.intervals import in_order
from opscope.core.tables.mapped import Mapped

TIMES = st.lists(st.integers(0, 40), max_size=60)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(mapped, "LEAST", 1)


@given(times=TIMES | TIMES.map(sorted), piece=st.integers(1, 9), files=st.booleans())
def test_in_order(small, tmp_path, times, piece, files):
    start = np.array(times, np.int64)
    rows = np.flatnonzero(np.arange(len(start)) % 3 < 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "PIECE", piece)
        found = in_order(start, rows, Mapped(tmp_path) if files else None)
    assert found.tolist() == rows[np.argsort(start[rows], kind="stable")].tolist()


@given(
    ids=st.lists(st.integers(-3, 9) | st.integers(0, 10**9), min_size=1), piece=st.integers(1, 9)
)
def test_the_last_row_of_an_id_is_found(small, tmp_path, ids, piece):
    rows = np.arange(len(ids))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "PIECE", piece)
        look = LookUp(np.array(ids, np.int64), rows, Mapped(tmp_path))
    wanted = np.arange(-5, 12)
    last = {one: row for row, one in enumerate(ids) if one >= 0}
    assert look(wanted).tolist() == [last.get(one, -1) for one in wanted.tolist()]


@pytest.mark.parametrize("many", [3, 300])
def test_combinations_in_pieces_are_numbered_as_at_once(small, tmp_path, monkeypatch, many):
    """Of few values by a table, of many by a search."""
    random = np.random.default_rng(many)
    made = [
        columns.spread(
            "a", [f"{side}{number}" for number in range(many)], random.integers(-1, many, 2_000)
        )
        for side in range(3)
    ]
    number, values = combined(made)
    monkeypatch.setattr(columns, "PIECE", 90)
    again, same = combined(made, Mapped(tmp_path))
    assert again.tolist() == number.tolist()
    assert [one.to_list() for one in same] == [one.to_list() for one in values]
    told = list(zip(*(one.gather(number).to_list() for one in values), strict=True))
    assert told == list(zip(*(one.to_list() for one in made), strict=True))
