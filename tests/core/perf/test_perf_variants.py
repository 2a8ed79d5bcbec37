"""What a name stands for is said where its model is registered: an op has one cost by any spelling."""

from __future__ import annotations

import ast
import fnmatch
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import opscope.core.perf
from opscope.core.perf import cost, registry
from opscope.core.perf.registry import entries, op, variant
from opscope.core.schema import OpCall, TensorSpec

MODULES = sorted(Path(opscope.core.perf.__file__).parent.glob("*.py"))
#: Those that read names of kernels and devices, and that which knows how PyTorch spells ops.
NOT_OF_OPS = {"kernel_names", "identify", "devices", "mig", "kinds", "registry"}


def f32(*shape: int) -> TensorSpec:
    return TensorSpec("f32", shape)


IMAGES = (f32(2, 4, 8, 8), f32(4), f32(4), f32(4), f32(4))
SQUARE = (f32(4, 4), f32(4, 4))
HEADS = (f32(2, 3, 8), f32(2, 3, 8), f32(2, 3, 8), f32(24, 8), f32(24), f32(8, 8), f32(8))


@pytest.mark.parametrize(
    ("name", "spelling", "inputs"),
    [
        ("aten::_native_batch_norm_legit_no_training", "{}.out", IMAGES),
        ("aten::_batch_norm_no_update", "{}.out", IMAGES),
        ("aten::multilabel_margin_loss_forward", "{}.output", (f32(4, 4), TensorSpec("i64", (4, 4)))),
        ("aten::col2im", "{}.out", (f32(2, 16, 9),)),
        ("aten::unfold_backward", "{}.out", (f32(2, 3, 4),)),
        ("aten::_linalg_det", "torch._linalg_det", SQUARE[:1]),
        ("aten::_linalg_solve_ex", "torch._linalg_solve_ex", SQUARE),
        ("aten::_fused_rms_norm", "torch._fused_rms_norm", (f32(4, 8), f32(8))),
        ("aten::_native_multi_head_attention", "torch._native_multi_head_attention", HEADS),
        ("aten::_linalg_slogdet", "_linalg_slogdet", SQUARE[:1]),
    ],
)  # fmt: skip
def test_an_op_has_one_cost_by_any_of_its_spellings(name, spelling, inputs):
    """Each of these had another by its overload's or the API's name, whose parts were looked at."""
    params = (("num_heads", 2), ("num_head", 2), ("embed_dim", 8))
    own, _ = cost(OpCall(name, inputs, params=params))
    other, _ = cost(OpCall(spelling.format(name), inputs, params=params))
    assert own is not None
    assert other is not None
    assert (own.flops, own.bytes_read, own.bytes_written) == (
        other.flops,
        other.bytes_read,
        other.bytes_written,
    )


def test_overloads_of_scatter_that_add_are_told_by_the_overload():
    inputs = (f32(8, 4), TensorSpec("i64", (4, 4)), f32(4, 4))
    flops = {}
    for overload in ("", ".src", ".reduce", ".value_reduce"):
        found, _ = cost(OpCall(f"aten::scatter{overload}", inputs))
        assert found is not None
        flops[overload] = found.flops
    assert flops == {"": 0, ".src": 0, ".reduce": 16, ".value_reduce": 16}


@pytest.fixture
def made(monkeypatch):
    """A registry whose new names are gone afterwards."""
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    registry.lookup.cache_clear()
    yield
    registry.lookup.cache_clear()


def test_a_variant_is_asked_for_by_any_spelling_of_its_name(made):
    @op("my::one", "my::two_wide", family="gemm", variants={"wide": "*_wide"})
    def model(call: OpCall):
        raise AssertionError

    asked = ("my::one", "my::two_wide", "my::two_wide.out", "my::two_wide_", "my::three")
    assert [variant(OpCall(name), "wide") for name in asked] == [False, True, True, True, False]


def test_a_variant_that_no_name_fits_is_refused(made):
    with pytest.raises(ValueError, match="none of the names matches \\*wide\\*"):

        @op("my::one", family="gemm", variants={"wide": "*wide*"})
        def model(call: OpCall):
            raise AssertionError

    assert "my::one" not in entries()


@given(st.text("ab", max_size=6), st.text("ab*", max_size=6))
def test_a_pattern_fits_what_fnmatch_says_it_does(name, pattern):
    assert registry._fits(name, pattern) == fnmatch.fnmatchcase(name, pattern)


def asked_and_declared(path: Path) -> list[tuple[str, set[str], set[str]]]:
    """For each registered model of a module the variants that it asks for, and those that it declares."""
    found = []
    for function in ast.parse(path.read_text()).body:
        if not isinstance(function, ast.FunctionDef):
            continue
        keywords = [
            keyword
            for decorator in function.decorator_list
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "op"
            for keyword in decorator.keywords
            if keyword.arg == "variants" and isinstance(keyword.value, ast.Dict)
        ]
        registered = any(
            isinstance(one, ast.Call) and ast.unparse(one.func) == "op"
            for one in function.decorator_list
        )
        keys = [key for one in keywords for key in one.value.keys]  # type: ignore[attr-defined]
        if not registered or any(not isinstance(key, ast.Constant) for key in keys):
            continue  # a helper, or a table of variants
        asked = {
            one.args[1].value
            for one in ast.walk(function)
            if isinstance(one, ast.Call)
            and ast.unparse(one.func) == "variant"
            and isinstance(one.args[1], ast.Constant)
        }
        found.append((function.name, asked, {key.value for key in keys}))
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_model_asks_for_no_variant_that_its_registration_does_not_have(path):
    lacking = [(name, asked - had) for name, asked, had in asked_and_declared(path) if asked - had]
    assert lacking == []


def looks_at_parts(node: ast.AST) -> bool:
    """Whether an expression asks what is in a call's name, or how it begins or ends."""
    if isinstance(node, ast.Compare):
        within = isinstance(node.ops[0], (ast.In, ast.NotIn))
        return within and ast.unparse(node.comparators[0]) == "call.name"
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("startswith", "endswith")
        and ast.unparse(node.func.value) == "call.name"
    )


@pytest.mark.parametrize("path", [one for one in MODULES if one.stem not in NOT_OF_OPS],
                         ids=lambda path: path.stem)  # fmt: skip
def test_no_cost_model_chooses_by_a_part_of_a_name(path):
    """But for names that are no op's: several calls in one, joined by ``+``; a compiled region."""
    allowed = {"'+' in call.name", "call.name.startswith('CompiledFunction')"}
    if path.stem == "tensorcore":  # of whatever is a linear layer it names the dimensions
        allowed.add("'linear' in call.name")
    found = [
        ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if looks_at_parts(node)
    ]
    assert set(found) <= allowed
