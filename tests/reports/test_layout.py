"""Tables for people: numbers whole, text shortened, the same lines wherever they are piped."""

from __future__ import annotations

import io
import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.question import units
from opscope.core.question.layout import PIPED_WIDTH, Column, Table, lines, write
from opscope.core.question.tables import totals

COLUMNS = [
    Column("time", "time", units.time),
    Column("op", "op", flexible=True),
    Column("layer", "layer", flexible=True, cut="start", rank=5),
    Column("calls", "calls", units.count),
]
OPS = ["share", "device_time", "calls", "op", "flops"]
KERNELS = ["share", "total", "calls", "mean", "name"]
cell = st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=300)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "time": st.integers(0, 10**15),
            "op": cell,
            "layer": st.none() | cell,
            "calls": st.integers(0, 10**9),
        }
    ),
    max_size=5,
)


@given(rows, st.integers(60, 200))
def test_lines_fit_the_width_and_no_number_is_cut(table_rows, width):
    made = list(lines(Table("", COLUMNS, table_rows), width))
    assert all(len(line) <= width for kind, line in made if kind != "note")
    body = [line for kind, line in made if kind == "row"]
    for row, line in zip(table_rows, body, strict=True):
        assert line.lstrip().startswith(units.time(row["time"]))
        assert line.endswith(units.count(row["calls"]))


def test_a_reason_that_is_cut_stands_below_the_table():
    columns = [Column("op", "op"), Column("why", "why", flexible=True)]
    rows = [{"op": f"op {n}", "why": f"the trace has no {what} for this call"} for n, what in enumerate(("shapes", "shapes", "dtypes"))]  # fmt: skip
    notes = [text for style, text in lines(Table("T", columns, rows), 30) if style == "note"]
    assert notes == [f"why: the trace has no {what} for this call" for what in ("shapes", "dtypes")]
    assert not [text for style, text in lines(Table("T", columns, rows), 80) if style == "note"]


def test_without_a_limit_nothing_is_shortened():
    row = {"time": 1, "op": "a" * 500, "layer": "b" * 500, "calls": 3}
    text = "".join(line for _, line in lines(Table("t", COLUMNS, [row]), 0))
    assert "a" * 500 in text
    assert "b" * 500 in text


def test_a_column_that_finds_no_room_is_named():
    row = {"time": 1, "op": "a" * 40, "layer": "b" * 40, "calls": 3}
    kind, line = list(lines(Table("", COLUMNS, [row]), 30))[-1]
    assert kind == "note"
    assert line.startswith("not shown for lack of width: layer")


def test_piped_output_is_plain_and_of_a_fixed_width():
    file = io.StringIO()
    row = {"time": 1, "op": "a" * 500, "layer": "b", "calls": 3}
    write([Table("Title", COLUMNS, [row])], file)
    written = file.getvalue().splitlines()
    assert written[0] == "Title"
    assert max(map(len, written)) == PIPED_WIDTH
    assert not set(file.getvalue()) & set("─━│┃╭╮\x1b")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_the_same_cells_within_its_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    file = Terminal()
    row = {"time": 12_345, "op": "a" * 500, "layer": "b" * 500, "calls": 3}
    write([Table("Title", COLUMNS, [row])], file)
    assert "\x1b[" in file.getvalue()
    written = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue()).splitlines()
    assert all(len(line) <= 60 for line in written)
    assert written[2].startswith("12.3 µs  aaa")
    assert written[2].endswith("  3")


@pytest.mark.parametrize("width", [20, 40, 60, 80])
@pytest.mark.parametrize(("keys", "about"), [(OPS, "op"), (KERNELS, "name")])
def test_what_a_row_is_about_is_the_last_to_go(keys, about, width):
    row = dict.fromkeys(keys, 1) | {about: "a" * 60, "share": 0.5}
    table = totals("", pl.DataFrame([row]), keys, None, "")
    kinds = list(lines(table, width))
    assert about in kinds[0][1].split()
    assert "a…" in kinds[1][1]
    assert all(len(line) <= width for kind, line in kinds if kind != "note")


def test_an_empty_table_lacks_no_columns():
    assert list(lines(Table("", COLUMNS, [], ("none",)), 5)) == [("note", "none")]
