"""The column ``inputs``: a number that stands for a tensor is shown in its place."""

from __future__ import annotations

import pytest

from opscope.core.analysis.ops.calls import _inputs
from opscope.core.dialects.aten_schema import tensor_arguments
from opscope.core.rangetext import parse


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("aten::mul_.Tensor(f32[6], _) -> =0 {other=2.5}", "f32[6], 2.5"),
        ("aten::add.Tensor(_, i64[]) -> i64[] {self=1, alpha=1}", "1, i64[]"),
        ("aten::where.self(bool[3], f32[3], _) -> f32[3] {other=0.0}", "bool[3], f32[3], 0.0"),
        # an argument that is absent stays so, as does what no schema explains
        ("aten::linear(f32[2,3], f32[4,3], _) -> f32[2,4]", "f32[2,3], f32[4,3], _"),
        ("aten::convolution(f32[1], f32[1], _) {groups=1}", "f32[1], f32[1], _"),
        ("mine::mul(f32[6], _) {other=2.5}", "f32[6], _"),
    ],
)
def test_a_number_is_shown_where_the_tensor_would_be(text, shown):
    assert _inputs(parse(text)) == shown


def test_the_schema_is_the_one_that_has_the_other_arguments():
    assert tensor_arguments("aten::add.Tensor", 2, frozenset({"alpha"})) == ("self", "other")
    assert tensor_arguments("aten::add.Tensor", 2, frozenset({"no such"})) is None
    assert tensor_arguments("aten::no_such_op", 1, frozenset()) is None
