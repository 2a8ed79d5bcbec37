"""Numbers for values and pairs, and columns in one piece, against what Python says."""

from __future__ import annotations

from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from opscope.core.tables import columns, lanes

_TEXT = st.sampled_from([None, "a", "b", "c", "ddd"])
_INT = st.one_of(st.integers(-1, 3), st.integers(-(1 << 62), 1 << 62))


def categorical(texts):
    return pl.Series("x", texts, dtype=pl.String).cast(pl.Categorical)


@given(st.lists(_TEXT, max_size=20))
def test_distinct_values_are_each_there_once(texts):
    found = columns.distinct_values(categorical(texts)).cast(pl.String).to_list()
    assert len(found) == len(set(found))
    assert set(found) == set(texts)


@given(st.lists(st.tuples(_TEXT, _TEXT, _TEXT), max_size=20))
def test_rows_of_texts_have_the_number_of_their_combination(rows):
    given_ = [categorical(list(column)) for column in zip(*rows, strict=True)] or [
        categorical([])
    ] * 3
    number, values = columns.combined(given_)
    told = list(zip(*(column.to_list() for column in values), strict=True))
    assert [told[place] for place in number.tolist()] == rows
    assert len(set(told)) == len(told) == len(set(rows))


@given(
    st.integers(1, 4).flatmap(
        lambda wide: st.lists(
            st.tuples(*[st.sampled_from([-1, 0, 1, 7, 1 << 40, (1 << 62) + 5])] * wide), min_size=1
        )
    )
)
def test_combinations_are_numbered_in_order(rows):
    table = np.array(rows, np.int64)
    many, number = columns.combinations(*table.T)
    distinct = sorted(set(rows))
    assert many == len(distinct)
    assert [distinct[one] for one in number] == rows


def test_no_rows_have_no_combinations():
    many, number = columns.combinations(np.empty(0, np.int64), np.empty(0, np.int64))
    assert (many, len(number)) == (0, 0)


@given(st.lists(st.tuples(_INT, _INT), max_size=20))
def test_pairs_are_numbered_in_order(rows):
    left, right = (np.array([row[side] for row in rows], np.int64) for side in (0, 1))
    one, other, number = columns.pairs(left, right)
    told = list(zip(one.tolist(), other.tolist(), strict=True))
    assert told == sorted(set(rows))
    assert [told[place] for place in number.tolist()] == rows


@pytest.mark.parametrize("run", [1, 50])
@given(rows=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60)), max_size=30))
def test_each_lane_has_the_rows_of_its_thread(rows, run):
    rows = [row for row in rows for _ in range(run)]
    frame = pl.DataFrame(rows, schema={"process": pl.Int32, "thread": pl.Int64}, orient="row")
    chosen = np.arange(len(rows)) % 3 != 0
    for piece in (7, 250_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(columns, "PIECE", piece)
            found = dict(lanes.lanes(frame).rows(chosen))
        wanted: dict[tuple[int, int], list[int]] = {}
        for place, row in enumerate(rows):
            if chosen[place]:
                wanted.setdefault(row, []).append(place)
        assert {key: of.tolist() for key, of in found.items()} == wanted


def test_stacked_rows_are_in_one_piece_and_what_a_part_lacks_is_null():
    parts = [
        pl.DataFrame({"a": [1, 2]}),
        pl.DataFrame({"a": [3], "b": ["x"]}),
        pl.DataFrame({"a": [], "b": []}, schema={"a": pl.Int64, "b": pl.String}),
    ]
    found = columns.stacked(parts)
    assert found.rows() == [(1, None), (2, None), (3, "x")]
    assert found.n_chunks("all") == [1, 1]
    assert not parts


def test_parts_of_other_types_are_stacked_as_the_wider():
    parts = [pl.DataFrame({"a": pl.Series([1], dtype=pl.Int32)}), pl.DataFrame({"a": [1 << 40]})]
    assert columns.stacked(parts)["a"].to_list() == [1, 1 << 40]


@given(st.integers(0, 20), st.integers(1, 4))
def test_work_done_ahead_comes_in_order_and_is_all_there(many, piece):
    with mock.patch.object(columns, "PIECE", piece):
        found = list(columns.ahead(lambda part: list(range(part.start, part.stop)), many))
    assert [row for _, rows in found for row in rows] == list(range(many))
    assert all(rows == list(range(part.start, part.stop)) for part, rows in found)


def test_an_error_of_work_done_ahead_is_the_callers():
    def fails_late(part):
        if part.start:
            raise ValueError(f"rows from {part.start}")
        return part

    with mock.patch.object(columns, "PIECE", 2):
        made = columns.ahead(fails_late, 6)
        assert next(made)[0] == slice(0, 2)
        with pytest.raises(ValueError, match="rows from 2"):
            next(made)


@given(st.lists(st.one_of(st.just(-1), st.integers(0, 3)), max_size=12))
def test_a_negative_code_gathers_null(codes):
    for values in (categorical(["a", "b", None, "c"]), pl.Series([1, 2, None, 4])):
        told = [None if code < 0 else values[code] for code in codes]
        assert columns.gather(values, np.array(codes, np.int32)).to_list() == told


def test_a_frame_whose_columns_without_values_are_shared_is_as_it_was():
    frame = pl.DataFrame(
        {"a": [None, None], "b": [1, None], "c": [None, None], "d": [None, None]},
        schema={"a": pl.Int64, "b": pl.Int64, "c": pl.Int64, "d": pl.Categorical},
    )
    assert_frame_equal(columns.sharing_nulls(frame), frame)


def test_a_value_that_matches_is_found_and_null_is_none():
    column = pl.Series(["aten::mm", None, "aten::add"], dtype=pl.Categorical)
    assert columns.any_matches(column, r"::mm\b")
    assert not columns.any_matches(column, "conv")
    assert not columns.any_matches(column[1:2], "")
