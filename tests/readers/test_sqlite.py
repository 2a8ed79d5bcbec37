"""A SQLite table as typed columns, held against Python's own sqlite3, whatever its values are."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.readers import BadInput
from opscope.readers import sqlite as reader

#: What a stranger's file may hold in a column of any kind.
WORDS = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.binary(max_size=8),
)
#: Two builds of SQLite write a large real in two ways, so that only columns of numbers have any here.
NUMBERS = WORDS | st.floats(allow_nan=False)


def written(path: Path, rows: list[tuple], columns: str = "number, word, share, raw") -> Path:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"CREATE TABLE made ({columns})")
        db.executemany(f"INSERT INTO made VALUES ({', '.join('?' * len(rows[0]))})", rows)
    return path


def read(path: Path, kinds: dict[str, reader.Kind]) -> pl.DataFrame:
    with reader.Database(path) as database:
        return database.rows("made", kinds)


@given(rows=st.lists(st.tuples(NUMBERS, WORDS, NUMBERS, WORDS), min_size=1, max_size=12))
def test_every_value_is_as_sqlite_says_or_null(tmp_path_factory, rows):
    path = written(tmp_path_factory.mktemp("t") / "t.sqlite", rows)
    kinds: dict[str, reader.Kind] = {
        "number": "int", "word": "text", "share": "real", "raw": "blob",
    }  # fmt: skip
    found = read(path, kinds)
    with closing(sqlite3.connect(path)) as db:
        db.text_factory = lambda text: text.decode("utf-8", "replace")
        raw = db.execute("SELECT number, CAST(word AS BLOB), CAST(raw AS BLOB) FROM made")
        for row, (number, word, blob) in zip(found.rows(), raw.fetchall(), strict=True):
            if isinstance(number, int):
                assert row[0] == number
            elif not isinstance(number, float) or not number.is_integer():
                assert row[0] is None
            assert row[1] == ((word or b"").decode("utf-8", "replace") or None)
            assert row[3] == (blob or None)


@pytest.mark.parametrize("at", [0, 70_000])
@pytest.mark.parametrize("bad", ["CAST(x'61ff62' AS TEXT)", "x'61ff62'"])
def test_a_text_that_is_not_utf8_is_mended_wherever_it_stands(tmp_path, at, bad):
    path = written(tmp_path / "t.sqlite", [(f"text {n}",) for n in range(70_001)], "word")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE made SET word = {bad} WHERE rowid = {at + 1}")
    words = read(path, {"word": "text"})["word"]
    assert words[at] == "a\ufffdb"
    assert words.str.starts_with("text ").sum() == 70_000


@pytest.mark.parametrize("at", [0, 70_000])
def test_bytes_in_a_column_of_numbers_are_null_wherever_they_stand(tmp_path, at):
    path = written(tmp_path / "t.sqlite", [(n,) for n in range(70_001)], "number")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE made SET number = CAST(x'ff' AS TEXT) WHERE rowid = {at + 1}")
    with reader.Database(path) as database:
        numbers = database.rows("made", {"number": "int"})["number"]
        assert database.faults() == [
            ("warning", "values of made.number of the wrong type, read as null", 1)
        ]
    assert numbers[at] is None
    assert numbers.drop_nulls().to_list() == [n for n in range(70_001) if n != at]


def test_a_column_that_begins_with_nulls_has_its_kind(tmp_path):
    rows = [(None, None, None, None)] * 70_000 + [(1, "a", 0.5, b"\xff")]
    kinds: dict[str, reader.Kind] = {
        "number": "int", "word": "text", "share": "real", "raw": "blob",
    }  # fmt: skip
    found = read(written(tmp_path / "t.sqlite", rows), kinds)
    assert found.dtypes == [pl.Int64, pl.String, pl.Float64, pl.Binary]
    assert found.row(-1) == (1, "a", 0.5, b"\xff")
    assert found.head(70_000).null_count().row(0) == (70_000,) * 4


def test_a_table_without_rows_has_its_kinds(tmp_path):
    path = written(tmp_path / "t.sqlite", [(1, "a", 0.5, b"")])
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM made")
    kinds: dict[str, reader.Kind] = {"number": "int", "word": "text", "share": "real", "raw": "blob"}  # fmt: skip
    assert dict(read(path, kinds).schema) == {
        "number": pl.Int64, "word": pl.String, "share": pl.Float64, "raw": pl.Binary,
    }  # fmt: skip


def test_a_damaged_schema_that_is_no_text_is_refused(tmp_path):
    """What SQLite says of it quotes it, and Python cannot decode that."""
    path = written(tmp_path / "a.sqlite", [(1,)], '"number" INTEGER')
    path.write_bytes(path.read_bytes().replace(b'number" ', b"number,\x96"))
    with pytest.raises(BadInput, match="the SQLite database cannot be read"):
        reader.Database(path)
