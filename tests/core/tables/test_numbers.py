"""Numbers that come in pieces, some of them unknown, are those of one column, in memory and in mapped files."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.tables import columns, mapped
from opscope.core.tables.mapped import Mapped, let_go
from opscope.core.tables.numbers import Numbers

VALUES = st.lists(st.none() | st.integers(-(2**62), 2**62), max_size=30)


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(mapped, "LEAST", 1)
    monkeypatch.setattr(columns, "PIECE", 4)


@given(values=VALUES, only=st.booleans(), piece=st.integers(1, 9), more=st.integers(0, 3))
def test_all_ways_tell_the_same(short, tmp_path, values, only, piece, more):
    column = pl.Series("seq", [None] * len(values) if only else values, pl.Int64)
    parts = [column[begin : begin + piece] for begin in range(0, len(column), piece)]
    folder = Mapped(tmp_path)
    longer = pl.Series("seq", [*column.to_list(), *[None] * more], pl.Int64)
    rows = np.array([*range(len(longer)), -1][::-2], np.int64)
    wanted = [None if row < 0 else longer[int(row)] for row in rows]
    for made in (
        Numbers.of(column),
        Numbers.of_pieces(parts, len(column), None),
        Numbers.of_pieces(parts, len(column), folder),
        Numbers.of(column).moved(folder),
        Numbers.of_pieces(parts, len(column), None).moved(folder),
    ):
        found = made.extended(more)
        let_go()
        assert len(found) == len(longer)
        assert found.column.to_list() == longer.to_list()
        assert found.gather(rows).to_list() == wanted
        assert found.gather(rows).dtype == pl.Int64
        assert found.max() == longer.max()
        low = [one is not None and one >= 0 for one in longer.to_list()]
        assert found.at_least(0, slice(None)).tolist() == low
        assert found.at_least(0, slice(1, 4)).tolist() == low[1:4]
        assert found.at_least(0, rows[:-1][rows[:-1] >= 0]).tolist() == [
            low[row] for row in rows[:-1] if row >= 0
        ]
        assert len(made) == len(column)
