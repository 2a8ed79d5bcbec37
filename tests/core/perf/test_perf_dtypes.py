"""What kind of number a dtype is, is looked up: its first letter does not tell (``bf16``, ``bool``)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import opscope
from opscope.core import perf
from opscope.core.perf.devices.peaks import width_class
from opscope.core.perf.shapes import promote
from opscope.core.schema import COMPLEX, DTYPE_BITS, FLOATS, INTEGERS, OpCall, TensorSpec

PACKAGE = Path(opscope.__file__).parent
_TEXT_TESTS = {"startswith", "endswith", "starts_with", "ends_with"}


def is_dtype(node):
    """Whether an expression is one dtype's name: ``dtype``, ``x.dtype``, ``str(x.dtype)``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str":
        return bool(node.args) and is_dtype(node.args[0])
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return name.endswith("dtype")


def letters_read(source):
    """Line numbers at which a dtype is told by some of its letters."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Subscript):
            number = isinstance(node.slice, (ast.Slice, ast.UnaryOp)) or (
                isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int)
            )
            if is_dtype(node.value) and number:
                found.append(node.lineno)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            on = node.func.value
            if isinstance(on, ast.Attribute) and on.attr == "str":  # Polars: dtype.str.starts_with
                on = on.value
            if node.func.attr in _TEXT_TESTS and is_dtype(on):
                found.append(node.lineno)
            if node.func.attr in ("match", "search", "fullmatch") and any(map(is_dtype, node.args)):
                found.append(node.lineno)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            within = node.comparators[0]
            if is_dtype(within) and isinstance(node.left, ast.Constant):
                found.append(node.lineno)
    return found


@pytest.mark.parametrize(
    "source",
    [
        'x.dtype[:1] in "iub"',
        'dtype[0] == "f"',
        'dtype.startswith("b")',
        'str(t.dtype).endswith("32")',
        '"float" in dtype',
        're.match("f8", dtype)',
        'pl.col_dtype.str.starts_with("f")',
    ],
)
def test_such_a_test_is_found(source):
    assert letters_read(source) == [1]


def test_no_module_tells_a_dtype_by_its_letters():
    wrong = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        lines = letters_read(path.read_text("utf-8"))
        # the grammar of range texts is the one place that reads a dtype's letters: it parses them
        if lines and path.name != "rangetext.py":
            wrong[str(path.relative_to(PACKAGE))] = lines
    assert wrong == {}


def test_every_dtype_is_of_one_kind():
    kinds = [FLOATS, INTEGERS, COMPLEX, frozenset({"bool"})]
    assert frozenset().union(*kinds) == set(DTYPE_BITS)
    assert sum(map(len, kinds)) == len(DTYPE_BITS)


def written(op, dtype, shape, params):
    found, why = perf.cost(OpCall(op, (TensorSpec(dtype, shape),), None, params))
    assert found is not None, why
    return found.bytes_written


@given(
    st.sampled_from(sorted(DTYPE_BITS)),
    st.sampled_from(["aten::sum", "aten::prod", "aten::cumsum", "aten::cumprod"]),
    st.integers(1, 64),
    st.integers(1, 64),
)
def test_a_sum_is_as_wide_as_what_is_added_unless_these_are_integers(dtype, op, rows, columns):
    scan = "cum" in op
    params = (("dim", (1,)), ("keepdim", False)) if not scan else (("dim", 1),)
    bits = DTYPE_BITS[dtype]
    if dtype in INTEGERS | {"bool"}:
        bits = 64
    count = rows * columns if scan else rows
    assert written(op, dtype, (rows, columns), params) == (count * bits + 7) // 8


@given(st.sampled_from(sorted(FLOATS)), st.sampled_from(sorted(INTEGERS | {"bool"})))
def test_a_float_and_an_integer_make_that_float(real, integer):
    both = [TensorSpec(real, (4,)), TensorSpec(integer, (4,))]
    assert promote(both) == promote(both[::-1]) == real


def test_small_floats_share_the_rate_of_their_width():
    assert {width_class(one) for one in FLOATS if DTYPE_BITS[one] == 8} == {"f8"}
    assert {width_class(one) for one in FLOATS if DTYPE_BITS[one] == 6} == {"f6"}
    assert width_class("f4e2m1") == "f4"
    assert width_class("bf16") == "bf16"
