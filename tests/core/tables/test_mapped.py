"""Columns in mapped files are equal to those in memory, before and after their memory is given back."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_series_equal

from opscope.core.tables import mapped
from opscope.core.tables.mapped import Mapped, is_mapped, let_go

NUMBERS = (pl.Int8, pl.Int32, pl.Int64, pl.UInt8, pl.UInt32, pl.Float64)


@pytest.fixture
def short(monkeypatch):
    """Short columns are mapped too, and written a few bytes at a time."""
    monkeypatch.setattr(mapped, "LEAST", 1)
    monkeypatch.setattr(mapped, "_AT_ONCE", 24)


@given(values=st.lists(st.integers(0, 100), min_size=1), kind=st.sampled_from(NUMBERS))
def test_a_column_of_numbers_is_equal_and_no_file_has_a_name(short, tmp_path, values, kind):
    column = pl.Series("some", values, kind)
    made = Mapped(tmp_path).column(column)
    assert is_mapped(made.to_numpy())
    assert_series_equal(made, column)
    let_go()
    assert_series_equal(made, column)
    assert not list(tmp_path.iterdir())


@given(parts=st.lists(st.lists(st.sampled_from(["a", "b", "", "é"]), min_size=1), min_size=1))
def test_a_column_of_categories_in_pieces_is_equal(short, tmp_path, parts):
    column = pl.concat([pl.Series("some", part, pl.Categorical) for part in parts], rechunk=False)
    made = Mapped(tmp_path).column(column)
    let_go()
    assert made.n_chunks() == 1
    assert len(made) == 1 or is_mapped(made.to_physical().to_numpy())  # Polars copies one
    assert_series_equal(made, column)
    assert made.gather([len(column) - 1]).to_list() == column[-1:].to_list()


@given(
    values=st.lists(
        st.integers(-(2**62), 2**62) | st.none(),
        min_size=1,
    ).filter(lambda values: None in values)
)
def test_a_column_with_nulls_stays_as_it_is(short, tmp_path, values):
    column = pl.Series("some", values, pl.Int64)
    assert Mapped(tmp_path).column(column) is column


def test_columns_of_texts_and_short_ones_stay_as_they_are(tmp_path):
    held = Mapped(tmp_path)
    for column in (pl.Series(["a"]), pl.Series([1, 2]), pl.Series([], dtype=pl.Categorical)):
        assert held.column(column) is column
    assert held.array(np.arange(3)).flags.writeable


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int32, np.int64])
def test_an_array_is_equal_can_only_be_read_and_is_mapped_once(short, tmp_path, kind):
    values = np.arange(1_000).astype(kind)
    held = Mapped(tmp_path)
    made = held.array(values)
    let_go()
    assert made.dtype == values.dtype
    np.testing.assert_array_equal(made, values)
    assert not is_mapped(values)
    assert held.array(made) is made
    assert held.array(made[3:9]).base is not None
    assert is_mapped(made[3:9])
    with pytest.raises(ValueError, match="read-only"):
        made[0] = 1


def test_a_map_is_closed_with_its_last_column(short, tmp_path):
    before = len(mapped._maps)
    made = Mapped(tmp_path).column(pl.Series([1, 2, 3]))
    part = pl.DataFrame({"a": made}).filter(pl.col("a") > 0)["a"][:1]
    assert len(mapped._maps) == before + 1
    view = made.to_numpy()
    del made
    assert view.tolist() == [1, 2, 3]
    del view, part
    assert len(mapped._maps) == before


def test_a_full_disk_is_an_error(short, tmp_path, monkeypatch):
    class Full:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def write(self, _):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(mapped.tempfile, "TemporaryFile", lambda **_: Full())
    with pytest.raises(OSError, match="No space"):
        Mapped(tmp_path).array(np.arange(9))


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int32, np.int64])
def test_an_array_to_be_filled_keeps_what_is_written(short, tmp_path, kind):
    made = mapped.full(Mapped(tmp_path), 1_000, 1, kind)
    assert is_mapped(made)
    made[10:20] = 0
    let_go()
    assert made.dtype == np.dtype(kind)
    assert np.flatnonzero(made == 0).tolist() == list(range(10, 20))
    assert not list(tmp_path.iterdir())
    assert Mapped(tmp_path).array(made) is made


def test_an_array_without_a_folder_or_a_short_one_is_in_memory(tmp_path):
    for made in (
        mapped.zeros(None, 1 << 23, np.uint8),
        mapped.zeros(Mapped(tmp_path), 9, np.int64),
    ):
        assert not is_mapped(made)
        assert not made.any()


@pytest.mark.skipif(not hasattr(mapped.os, "posix_fallocate"), reason="there it writes zeros")
def test_no_array_is_mapped_that_the_disk_has_no_room_for(short, tmp_path, monkeypatch):
    """To write into the map of a file that has no room ends the process."""

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mapped.os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        Mapped(tmp_path).zeros(9, np.int64)


@given(
    values=st.lists(st.sampled_from(["a", "b", "é"]) | st.none(), min_size=1),
    text=st.booleans(),
    piece=st.integers(1, 5),
)
def test_a_column_that_comes_in_pieces_is_equal_or_has_nulls(short, tmp_path, values, text, piece):
    column = pl.Series("some", values, pl.Categorical)
    if not text:
        column = column.to_physical().cast(pl.Int32)
    parts = (column[begin : begin + piece] for begin in range(0, len(column), piece))
    made = Mapped(tmp_path).pieces("some", column.dtype, parts, len(column))
    let_go()
    if column.null_count():
        assert made is None
    else:
        assert_series_equal(made, column)
        assert len(made) == 1 or is_mapped(made.to_physical().to_numpy())
