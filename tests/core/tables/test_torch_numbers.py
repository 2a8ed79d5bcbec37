"""Texts without the numbers of their calls: what is fast says what the regular expressions say."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from opscope.core.dialects import torch_nvtx
from opscope.core.tables.torch_numbers import split

_NUMBER = st.one_of(
    st.integers(0, 10**20).map(str),
    st.sampled_from(["", "-1", "+5", " 7", "1_0", "7x", "٣", "0012"]),
)
_PIECES = st.one_of(
    st.sampled_from(
        [
            "aten::mm", "é", ",", ", ", ", seq = ", ", op_id = ", ", sizes = [[2, 3], []]", ", sizes = ",
            ", input_op_ids = [", ", input_op_ids = [(0,-1), (1,0)]", "]", ", seq = 5, op_id = 6",
        ]
    ),
    _NUMBER,
)  # fmt: skip
_USUAL = st.builds(
    "{}, seq = {}, op_id = {}{}".format,
    st.sampled_from(["aten::mm", "aten::add", "nn.Module: é"]),
    st.integers(0, 10**9),
    _NUMBER,
    st.sampled_from(["", ", sizes = [[2]]", ", sizes = [], input_op_ids = [(0,-1)]"]),
)
_TEXTS = st.lists(
    st.one_of(st.none(), _USUAL, st.lists(_PIECES, max_size=8).map("".join)), max_size=12
)


@given(_TEXTS)
@example([", sizes = [[2, 3], []], seq = 5, op_id = 6", "a, op_id = 3, seq = 4"])
def test_the_columns_are_those_of_strip(texts):
    texts = pl.Series("text", texts, dtype=pl.String)
    found, wanted = split(texts), torch_nvtx.strip(texts)
    assert found["text"].cast(pl.String).to_list() == wanted["text"].to_list()
    assert found["seq"].to_list() == wanted["seq"].cast(pl.Int64).to_list()


@pytest.mark.parametrize("more", ["", ", input_op_ids = [({},0)]"])
def test_a_million_calls_have_as_many_texts_as_there_are_kinds(more):
    numbers = range(100_000)
    texts = [f"aten::mm, seq = {n}, op_id = {n + 7}, sizes = [[{n % 3}]]" + more.format(n) for n in numbers]  # fmt: skip
    found = split(pl.Series("text", texts))
    assert found["seq"].to_list() == list(numbers)
    assert found["text"].n_unique() == 3
