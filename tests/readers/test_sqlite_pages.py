"""Integers decoded from a file's pages are those that SQLite reads, whatever the table looks like."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from opscope.readers import BadInput, sqlite_pages
from opscope.readers import sqlite as reader

INTEGERS = st.one_of(
    st.none(),
    st.integers(-2, 2),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(
        [s * (1 << b) + d for b in (7, 15, 23, 31, 47) for s in (1, -1) for d in (-1, 0)]
    ),
)
TEXTS = st.one_of(st.none(), st.text("aä", max_size=200), st.just("long " * 500))
KINDS: dict[str, reader.Kind] = {"one": "int", "word": "text", "two": "int", "three": "int"}
RARE: dict[str, reader.Kind] = {"four": "int", "other": "text"}
TABLE = "CREATE TABLE made (one INTEGER, word TEXT, two, three INTEGER, four, other)"


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces of a few pages each, in blocks of two pages."""
    monkeypatch.setattr(sqlite_pages, "PIECE", 1 << 14)
    monkeypatch.setattr(sqlite_pages, "_BLOCK", 1 << 12)


@pytest.fixture
def from_pages(monkeypatch):
    """A list of the pieces that were decoded without SQLite."""
    found = []
    rows = sqlite_pages.Pages.rows

    def told(self, piece, *columns):
        result = rows(self, piece, *columns)
        found.append(piece)
        return result

    monkeypatch.setattr(sqlite_pages.Pages, "rows", told)
    return found


def made(path: Path, rows: list[tuple], *sql: str, table: str = TABLE, page: int = 4096) -> Path:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"PRAGMA page_size = {page}")
        db.execute(table)
        if rows:
            db.executemany(f"INSERT INTO made VALUES ({', '.join('?' * len(rows[0]))})", rows)
        for statement in sql:
            db.execute(statement)
    return path


def scanned(path: Path, kinds=KINDS, rare=RARE) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The columns of all pieces, and the rare ones with the row's number in the table."""
    frames, seldom, row = [], [], 0
    with reader.Database(path) as database:
        for frame, others in database.scan("made", kinds, lambda *both: both, rare):
            frames.append(frame)
            if others is not None:
                seldom.append(others.with_columns(pl.col(reader.ROW).cast(pl.Int64) + row))
            row += len(frame)
    return pl.concat(frames), pl.concat(seldom) if seldom else pl.DataFrame()


def by_sqlite(path: Path, kinds=KINDS) -> pl.DataFrame:
    types = {"int": pl.Int64, "text": pl.String}
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(f"SELECT {', '.join(kinds)} FROM made ORDER BY rowid").fetchall()
    schema = {name: types[kind] for name, kind in kinds.items()}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    return frame.with_columns(pl.col(pl.String).replace("", None))


@given(
    rows=st.lists(
        st.tuples(INTEGERS, TEXTS, INTEGERS, INTEGERS, st.none() | INTEGERS, st.none() | TEXTS),
        min_size=1,
        max_size=60,
    ),
    copies=st.sampled_from([1, 7, 300]),
    page=st.sampled_from([512, 4096, 65536]),
    first=st.sampled_from([-(2**40), -5, 1, 2**20, 2**33]),
)
def test_every_row_is_as_sqlite_says(tmp_path_factory, rows, copies, page, first):
    path = tmp_path_factory.mktemp("t") / "t.sqlite"
    begin = f"UPDATE made SET rowid = rowid + {first} - 2000000"
    # rows get other numbers, leave holes, grow and shrink: pages are no longer in the file's order
    made(
        path, rows * copies, "UPDATE made SET rowid = rowid + 2000000", begin,
        "DELETE FROM made WHERE rowid % 5 = 3", "UPDATE made SET two = 1 << 40 WHERE rowid % 7 = 2",
        page=page,
    )  # fmt: skip
    found, rare = scanned(path)
    assert_frame_equal(found, by_sqlite(path))
    told = by_sqlite(path, RARE).with_row_index(reader.ROW)
    with closing(sqlite3.connect(path)) as db:
        sql = "SELECT coalesce(four, other) IS NOT NULL FROM made ORDER BY rowid"
        held = [bool(one) for (one,) in db.execute(sql)]
    expected = told.filter(pl.Series(held, dtype=pl.Boolean)).cast({reader.ROW: pl.Int64})
    if len(expected):
        assert_frame_equal(rare, expected)
    else:
        assert not len(rare)


def test_many_pieces_are_decoded_without_sqlite(tmp_path, small_pieces, from_pages):
    rows = [(n * 1_000_003, None, n % 3, None, None, None) for n in range(30_000)]
    path = made(tmp_path / "t.sqlite", rows, page=1024)
    numbers: dict[str, reader.Kind] = {"three": "int", "two": "int", "one": "int"}
    found, rare = scanned(path, numbers)
    assert len(from_pages) > 10
    assert_frame_equal(found, by_sqlite(path, numbers))
    assert not len(rare)


def test_rows_on_several_pages_are_read_by_sqlite(tmp_path, monkeypatch, from_pages):
    # each page is a piece, and the tree of pages has several levels
    monkeypatch.setattr(sqlite_pages, "PIECE", 512)
    long = range(5, 4000, 17)
    rows = [(n, None, n, n, None, "x" * 900 if n in long else None) for n in range(6000)]
    path = made(tmp_path / "t.sqlite", rows, page=512)
    found, rare = scanned(path)
    assert_frame_equal(found, by_sqlite(path))
    assert rare[reader.ROW].to_list() == list(long)
    assert len(from_pages) > 50


@pytest.mark.parametrize("value", [0.5, 2.0, "a text", b"\xff", "12"])
def test_a_value_that_is_no_integer_is_as_before(tmp_path, monkeypatch, value):
    rows = [(n, None, n, n, None, None) for n in range(1000)]
    path = made(tmp_path / "t.sqlite", rows)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE made SET two = ? WHERE rowid = 500", (value,))
    found, _ = scanned(path)
    monkeypatch.setattr(reader.Database, "_decoder", lambda *_: None)
    assert_frame_equal(found, scanned(path)[0])
    assert found["two"][499] == (2 if value == 2.0 else None)


@pytest.mark.parametrize(
    ("table", "sql"),
    [
        ("CREATE TABLE made (one INTEGER PRIMARY KEY, two, three)", []),
        ("CREATE TABLE made (one, two PRIMARY KEY, three) WITHOUT ROWID", []),
        ("CREATE TABLE made (one, two, three, sum AS (one + two) STORED)", []),
        ("CREATE TABLE made (one, zero AS (7), two, three)", []),
        ("CREATE TABLE made (one, two, three)", ["ALTER TABLE made ADD COLUMN last DEFAULT 7"]),
        ("CREATE TABLE made (one REAL, two, three)", []),
    ],
)  # fmt: skip
def test_a_table_of_another_form_is_as_sqlite_says(tmp_path, table, sql):
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(table)
        rows = [(n, n * 2, n * 3) for n in range(500)]
        db.executemany("INSERT INTO made (one, two, three) VALUES (?, ?, ?)", rows)
        for statement in sql:
            db.execute(statement)
        names = [row[1] for row in db.execute("PRAGMA table_info(made)")]
        order = "two" if "WITHOUT" in table else "rowid"
        told = db.execute(f"SELECT {', '.join(names)} FROM made ORDER BY {order}").fetchall()
    kinds: dict[str, reader.Kind] = dict.fromkeys(names, "int")
    found, _ = scanned(path, kinds, {})
    assert found.rows() == told


def test_an_extent_is_packed_as_sqlite_packs_it(tmp_path, monkeypatch):
    rows = [(n, None, None if n % 7 == 0 else -n, n << 40, None, None) for n in range(2000)]
    path = made(tmp_path / "t.sqlite", rows)
    kinds: dict[str, reader.Column] = {"grid": ("one", "two", "three")}
    found, _ = scanned(path, kinds, {})
    monkeypatch.setattr(reader.Database, "_decoder", lambda *_: None)
    assert_frame_equal(found, scanned(path, kinds, {})[0])


@given(places=st.lists(st.tuples(st.integers(100, 60_000), st.integers(0, 255)), max_size=20))
def test_a_damaged_file_is_refused_or_read(tmp_path_factory, places):
    path = tmp_path_factory.mktemp("t") / "t.sqlite"
    rows = [(n, "word", n * 77, None, None, None) for n in range(3000)]
    made(path, rows, page=512)
    held = bytearray(path.read_bytes())
    for place, byte in places:
        held[place % len(held)] = byte
    path.write_bytes(held)
    try:
        found, _ = scanned(path)
    except BadInput:
        return
    assert len(found) <= len(held)


def test_pages_that_lead_in_a_circle_end(tmp_path):
    path = made(tmp_path / "t.sqlite", [(n, None, n, n, None, None) for n in range(5000)], page=512)
    with closing(sqlite3.connect(path)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_master").fetchone()
    held = bytearray(path.read_bytes())
    at = (root - 1) * 512
    assert held[at] == 5
    held[at + 8 : at + 12] = root.to_bytes(4, "big")  # the rightmost child is the page itself
    path.write_bytes(held)
    with sqlite_pages.Pages(path) as pages, pytest.raises(sqlite_pages.Unusual):
        pages.pieces(root)
