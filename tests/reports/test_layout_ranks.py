"""Which columns a narrow table leaves out first: a report's own forms say so, then the names of the columns."""

from __future__ import annotations

import polars as pl

from opscope.core.question.layout import Column, lines
from opscope.core.question.tables import totals

FRAME = pl.DataFrame(
    {"op": ["aten::mm"], "time": ["1 ms"], "source": ["train.py:1"], "mine": ["a value"], "rest": ["another"]}
)  # fmt: skip


def left_out(width: int, *forms: Column) -> list[str]:
    table = totals("ops", FRAME, FRAME.columns, None, "", forms=forms)
    (note,) = [text for _, text in lines(table, width) if text.startswith("not shown")]
    return note.removeprefix("not shown for lack of width: ").partition(" (")[0].split(", ")


def test_a_column_whose_form_has_a_rank_goes_before_those_that_have_none() -> None:
    plain = (Column("time", "time"), Column("source", "source"), Column("rest", "rest"))
    assert left_out(36, *plain, Column("mine", "mine")) == ["source"]
    assert left_out(36, *plain, Column("mine", "mine", rank=9)) == ["mine"]
    assert left_out(30, *plain, Column("mine", "mine", rank=9)) == ["source", "mine"]


def test_the_row_s_subject_stays_also_where_its_form_says_nothing() -> None:
    forms = [Column(key, key) for key in FRAME.columns]
    assert "op" not in left_out(12, *forms)


def test_a_column_that_its_form_keeps_goes_after_all_others() -> None:
    forms = [Column(key, key) for key in FRAME.columns if key != "rest"]
    kept = left_out(18, *forms, Column("rest", "rest", rank=-1))
    assert "rest" not in kept
    assert {"time", "source", "mine"} <= set(kept)
