"""Rows that are kept in few bytes come back exactly as they were."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from opscope.core.tables import narrow
from opscope.core.tables.narrow import Frames, Narrow

_LEAST, _MOST = -(2**63), 2**63 - 1


def frame(many: int, first: int = 0) -> pl.DataFrame:
    random = np.random.default_rng(first)
    start = pl.Series("start", random.integers(0, 2**62, many))
    return pl.DataFrame(
        {
            "process": pl.Series(np.arange(many) // 3 + first, dtype=pl.Int32),
            "group": pl.Series([None, "a", "b"] * (many // 3), dtype=pl.Categorical),
            "comms": pl.Series([str(one) for one in range(many)]),
            "start": start,
            "end": (start + random.integers(0, 2**20, many)).set(start > 2**61, None),
            "called": start - 5,
            "far": pl.Series([_LEAST, _MOST, None] * (many // 3), dtype=pl.Int64),
            "wide": pl.Series([0, 2**32, 1] * (many // 3), dtype=pl.Int64),
            "byte": pl.Series([-128, 127, None] * (many // 3), dtype=pl.Int64),
            "small": pl.Series([-128, 127, 0] * (many // 3), dtype=pl.Int8),
            "peer": pl.Series([None] * many, dtype=pl.Int64),
            "share": random.random(many),
            "known": pl.Series([True, None, False] * (many // 3), dtype=pl.Boolean),
        }
    )


@pytest.mark.parametrize("many", [0, 3, 300])
def test_rows_come_back_as_they_were(many):
    parts = [frame(many, first) for first in (0, 1000, 2000)]
    kept = Narrow(parts)
    assert_frame_equal(kept.frame(), pl.concat(parts), check_exact=True)
    assert len(kept) == 3 * many
    for made, part in zip(kept.parts(), parts, strict=True):
        assert_frame_equal(made, part, check_exact=True)


def test_times_without_a_start_come_back():
    rows = pl.DataFrame(
        {"start": [None, None, 5], "end": [7, None, 9], "called": [_LEAST, 3, _MOST]}
    )
    for part in (rows, rows[:2]):
        assert_frame_equal(Narrow([part]).frame(), part)


def test_rows_take_few_bytes():
    many = 30_000
    rows = pl.DataFrame(
        {
            "process": pl.Series(np.arange(many) // 300, dtype=pl.Int32),
            "group": pl.Series(["world"] * many, dtype=pl.Categorical),
            "start": 10**18 + np.arange(many) * 10_000,
            "end": 10**18 + np.arange(many) * 10_000 + 500,
            "comms": pl.Series([None] * many, dtype=pl.String),
        }
    )
    kept, _ = narrow._narrowed(rows)
    # process 1 byte, group 1, start 4, end 2 at most, comms none; the frame's nulls are of 16 and not counted
    assert kept.estimated_size() <= 8 * many == rows.estimated_size() / 3


def test_pieces_are_of_whole_parts(monkeypatch):
    monkeypatch.setattr(narrow, "MOST", 7)
    kept = Narrow([frame(3), frame(3, 1), frame(9, 2), frame(3, 3)])
    assert [len(one) for one in kept.pieces()] == [6, 9, 3]
    assert not list(Narrow().pieces())
    assert Narrow().frame().shape == (0, 0)


def test_parts_of_other_columns_are_refused():
    kept = Narrow([frame(3)])
    with pytest.raises(ValueError, match="columns differ"):
        kept.add(frame(3).drop("far"))


def test_frames_are_put_together_when_they_are_asked_for():
    kept = Narrow([frame(3), frame(3, 1)])
    frames = Frames({"one": frame(3)}, {"many": kept.pieces})
    assert set(frames) == {"one", "many"}
    assert_frame_equal(frames["many"], kept.frame())
    assert_frame_equal(pl.concat(frames.pieces("many")), kept.frame())
    assert_frame_equal(*frames.pieces("one"), frames["one"])
