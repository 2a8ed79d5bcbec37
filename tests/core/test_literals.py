"""Python literals from a stranger: what Python itself reads is equal, what is more is refused and bounded."""

from __future__ import annotations

import ast
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.literals import DEPTH, NotLiteral, literal

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_what_python_writes_is_read_back(value):
    assert literal(repr(value)) == value


@given(st.text(alphabet="'\"\\[](){},:=+-.0123456789euxNTrueFalsNone_# \n", max_size=40))
def test_any_text_is_what_python_reads_or_is_refused(text):
    with contextlib.suppress(NotLiteral):
        ours = literal(text)
        assert repr(ours) == repr(ast.literal_eval(text.strip()))


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('x')", "1+1", "f'{x}'", "b'x'", "x", "lambda: 1", "[x for x in y]", "{1, 2}",
        "'a' 'b'", "{'a': 1,, 'b': 2}", "{[1]: 2}", "(,)", "1 2", "]", "", "'\\xz'", "-True", "9" * 41,
        "--1", "+" * 60_000 + "1", "1+" * 30_000 + "1", "'" + "\\" * 60_001 + "'", "(" * 200_000,
    ],
)  # fmt: skip
def test_anything_else_is_refused(text):
    with pytest.raises(NotLiteral):
        literal(text)


def test_depth_and_number_of_values_are_bounded():
    assert literal("[" * DEPTH + "]" * DEPTH)
    with pytest.raises(NotLiteral, match="brackets are too deep"):
        literal("[" * (DEPTH + 1) + "]" * (DEPTH + 1))
    assert len(literal(str(list(range(50))), values=50)) == 50
    with pytest.raises(NotLiteral, match="too many values"):
        literal(str(list(range(51))), values=50)


def test_a_lone_surrogate_becomes_text():
    assert literal("'\\ud800'") == "?"


def test_python_2_wrote_long_numbers_and_unicode():
    assert literal("{u'tid': 3590305536L}") == {"tid": 3590305536}
