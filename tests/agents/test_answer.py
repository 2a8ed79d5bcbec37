"""An answer fits in its budget whatever is in it, says what it leaves out, and rounds nothing that is whole."""

from __future__ import annotations

import json

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from opscope.agents.answer import LEAST_TOKENS, TOKENS, Answer, Hint, Rows, as_json, text, tokens

SENTENCES = st.lists(st.text(max_size=900), max_size=12)
CELLS = st.one_of(
    st.none(), st.integers(-(2**60), 2**60), st.floats(), st.text(max_size=3_000), st.booleans()
)


@given(
    said=SENTENCES, untold=SENTENCES, to_try=st.none() | st.text(max_size=2_000),
    where=st.dictionaries(st.sampled_from(["op", "kernel", "layer", "source", "inputs"]), st.text(max_size=4_000)),
    columns=st.integers(1, 40), cells=st.lists(CELLS, min_size=1, max_size=60),
    budget=st.sampled_from([LEAST_TOKENS, TOKENS, 4_000]), argument=st.text(max_size=4_000),
)  # fmt: skip
def test_no_answer_is_larger_than_its_budget(
    said, untold, to_try, where, columns, cells, budget, argument
):
    names = {f"column_number_{number}": "bytes/s" for number in range(columns)}
    rows = [[cells[(row + n) % len(cells)] for n in range(columns)] for row in range(50)]
    answer = Answer(
        "ask", "1: a.json", "cause", {"name": "input-bound", **where}, where, said, to_try,
        Rows.of_list(rows, names), list(names), untold, [Hint("ask", {"question": argument}, "why")] * 4,
    )  # fmt: skip
    made = as_json(answer, budget)
    assert tokens(text(made)) <= budget
    assert json.loads(text(made)) == json.loads(json.dumps(made))
    assert all(len(row) == len(made["columns"]) for row in made["rows"])


def frame(rows: int) -> pl.DataFrame:
    return pl.DataFrame(
        {"op": [f"aten::op_{n}" for n in range(rows)], "time": [10**15 + n for n in range(rows)]}
    )


def test_the_rows_of_all_parts_are_those_of_the_frame():
    rows, first = [], 0
    while True:
        made = as_json(Answer("ask", rows=Rows.of(frame(500), {"time": "ns"}, first)))
        rows += made["rows"]
        assert made["shown"] == f"rows {first} to {first + len(made['rows']) - 1} of 500"
        if "rest" not in made:
            break
        first = made["rest"]["from"]
    assert [tuple(row) for row in rows] == frame(500).rows()
    assert made["columns"] == {"op": "text", "time": "ns"}


def test_a_larger_budget_shows_more_rows():
    small, large = (
        len(as_json(Answer("ask", rows=Rows.of(frame(900), {})), budget)["rows"])
        for budget in (400, 4_000)
    )
    assert 5 < small < large / 8


def test_behind_the_last_row_there_is_none():
    made = as_json(Answer("ask", rows=Rows.of(frame(3), {}, 3)))
    assert (made["rows"], made["shown"]) == ([], "none of 3 rows")
    assert "rest" not in made


def test_texts_that_differ_far_behind_stay_different():
    long = "void at::native::vectorized_elementwise_kernel<4, at::native::" + "x" * 300
    kernels = pl.DataFrame({"name": [f"{long}<{n}>" for n in range(4)]})
    made = as_json(Answer("ask", rows=Rows.of(kernels, {})))
    assert len({row[0] for row in made["rows"]}) == 4
    assert all(len(row[0]) <= 120 for row in made["rows"])


def test_a_float_has_four_digits_and_what_is_no_number_is_unknown():
    shares = pl.DataFrame({"share": [0.123456, float("nan"), float("inf"), None]})
    assert as_json(Answer("ask", rows=Rows.of(shares, {})))["rows"] == [
        [0.1235],
        [None],
        [None],
        [None],
    ]


def test_control_characters_of_a_trace_are_shown_as_escapes():
    made = as_json(
        Answer(
            "ask", said=["\x1b[31mred\u202eder"], rows=Rows.of_list([["a\x07b"]], {"op": "text"})
        )
    )
    assert made["said"] == ["\\x1b[31mred\\u202eder"]
    assert made["rows"] == [["a\\x07b"]]


def test_sentences_are_shortened_before_they_are_left_out():
    made = as_json(Answer("diagnose", said=["word " * 400], cannot_tell=["no " * 100] * 30))
    assert made["said"][0].endswith("…")
    assert made["cannot_tell"][-1].startswith("and ")
