"""What Kineto writes of an op's arguments, as range text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core import perf
from opscope.core.dialects.aten_schema import arguments
from opscope.core.rangetext import parse
from opscope.core.schema import TensorSpec
from opscope.readers.kineto.ops import op_text, with_layout


def text(
    name: str,
    dims: object = None,
    types: object = None,
    strides: object = None,
    values: object = None,
    stack: object = None,
) -> str:
    raw = [
        b"" if part is None else json.dumps(part).encode()
        for part in (dims, types, strides, values, stack)
    ]
    return op_text(name, *raw)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("aten::relu", [[2, 3]], ["float"]), "aten::relu(f32[2,3])"),
        (
            ("aten::addmm", [[4], [2, 3], [3, 4], [], []], ["c10::Half"] * 3 + ["Scalar"] * 2,
             [[1], [3, 1], [1, 3], [], []], ["", "", "", "1", "0.5"]),
            "aten::addmm(f16[4], f16[2,3], f16[3,4]{0,1}) {beta=1, alpha=0.5}",
        ),
        # an optional tensor that is absent keeps its place when one follows
        (
            ("aten::native_layer_norm_backward", [[2, 8], [2, 8], [8], [2, 1], [2, 1], [], [8], []],
             ["float", "float", "", "float", "float", "", "float", ""]),
            "aten::native_layer_norm_backward(f32[2,8], f32[2,8], ?[8], f32[2,1], f32[2,1], _, f32[8])",
        ),
        # a list of tensors: with sizes, and as 2021's Kineto wrote it, without
        (("aten::cat", [[[2, 3], [2, 3]], []], ["TensorList", "Scalar"], None, ["", "1"]),
         "aten::cat([?[2,3]]*2) {dim=1}"),
        (("aten::cat", [[], []], ["GenericList", "Int"]), "aten::cat([?[?]])"),
        # where the sizes of one list are there, a list without any is empty
        (("aten::_fused_adam_", [[[2], []], [[2], []], [[2], []], [[2], []], [], [[], []]],
          ["TensorList"] * 6),
         "aten::_fused_adam_([?[2], ?[]], [?[2], ?[]], [?[2], ?[]], [?[2], ?[]], [], [?[]]*2)"),
        (("aten::to", [[2], [], [], [], []], ["long int", "Scalar", "", "", ""], None,
          ["", "15", "False", "False", ""]),
         "aten::to(i64[2]) {dtype=\"bf16\", non_blocking=false, copy=false}"),
        (("mylib::op", [[2], [], []], ["double", "Scalar", ""], None, ["", "3", "mean"]),
         'mylib::op(f64[2]) {arg1=3, arg2="mean"}'),
        # the first arguments of a library's op have names, those behind them as before
        (("aiter::mha_batch_prefill", [[9, 2, 4], [3, 8, 1, 4], [3, 8, 1, 4], [2], [2], [3], *[[]] * 10],
          ["c10::BFloat16"] * 3 + ["int"] * 3 + ["Scalar"] * 10, None,
          [*[""] * 6, "9", "17", "0.", "0.5", "0.", "False", "True", "-1", "0", "7"]),
         "aiter::mha_batch_prefill(bf16[9,2,4], bf16[3,8,1,4], bf16[3,8,1,4], i32[2], i32[2], i32[3]) "
         "{max_seqlen_q=9, max_seqlen_k=17, dropout_p=0.0, softmax_scale=0.5, logits_soft_cap=0.0, "
         "zero_tensors=false, is_causal=true, window_size_left=-1, window_size_right=0, arg15=7}"),
        # another version's, which the types tell: no names rather than wrong ones
        (("sgl_kernel::sgl_per_tensor_quant_fp8", [[2], [2], [], [1]], ["float", "Byte", "Scalar", "float"], None,
          ["", "", "1", ""]),
         "sgl_kernel::sgl_per_tensor_quant_fp8(f32[2], u8[2], f32[1]) {arg2=1}"),
        (("aten::add",), "aten::add()"),
        (("a name: with spaces",), '"a name: with spaces"()'),
        (("aten::mm", [[2, 3], [3, 4]], ["float"]), "aten::mm(?[2,3], ?[3,4])"),
        (("aten::mm", [[2, 3], [3, 4]], ["float", "float"], [[], [4, 1]]), "aten::mm(f32[2,3]{other}, f32[3,4])"),
        (("aten::mul", [[], [2]], ["float", "float"], [[], [1]]), "aten::mul(f32[], f32[2])"),
        (("aten::relu", "not a list", 5), "aten::relu()"),
        (("aten::relu", [["a"]], ["float"]), "aten::relu(f32[?])"),
        (("aten::relu", [[2]], ["my type<x>"]), "aten::relu(?[2])"),
        (("relu", [[2]], ["float"], None, None,
          "/x/site-packages/torch/nn.py(4): f;train.py(12): step;main.py(3): <module>"),
         "relu(f32[2]) @train.py:12 < main.py:3"),
    ],
)  # fmt: skip
def test_text(given: tuple, expected: str) -> None:
    assert text(*given) == expected
    assert parse(expected).name == given[0]


@given(st.lists(st.integers(0, 5), max_size=5), st.data())
def test_layout_gives_back_the_strides(shape: list[int], data: st.DataObject) -> None:
    """A dense permutation is named as one, and its strides follow from the name."""
    order = data.draw(st.permutations(range(len(shape))))
    strides = [0] * len(shape)
    step = 1
    for dim in order:
        strides[dim] = step
        step *= max(shape[dim], 1)
    spec = with_layout("f32", tuple(shape), tuple(strides))
    assert spec.strides is None
    minor = spec.minor_to_major or tuple(range(len(shape)))[::-1]
    running = 1
    for dim in minor:
        if shape[dim] > 1 and 0 not in shape:
            assert strides[dim] == running
        running *= max(shape[dim], 1)


def test_a_strided_view_keeps_its_strides() -> None:
    assert with_layout("f32", (4, 4), (8, 1)) == TensorSpec("f32", (4, 4), strides=(8, 1))
    assert with_layout("f32", (4, 4), (0, 1)) == TensorSpec("f32", (4, 4), strides=(0, 1))
    assert with_layout("f32", (1, 4), (77, 1)) == TensorSpec("f32", (1, 4))


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=12,
)  # fmt: skip


@given(
    st.sampled_from(["aten::mm", "aten::cat", "aten::add", "x"]),
    st.lists(_json, min_size=5, max_size=5),
)
def test_any_arguments_give_a_text_that_parses(name: str, parts: list[object]) -> None:
    assert parse(text(name, *parts)).name == name


def test_schemas_know_arguments_by_name_and_number() -> None:
    found = arguments("aten::convolution", 9)
    assert found is not None
    assert [(a.name, a.kind) for a in found[:4]] == [
        ("input", "tensor"), ("weight", "tensor"), ("bias", "tensor"), ("stride", "scalar"),
    ]  # fmt: skip
    assert arguments("aten::no_such_op", 2) is None
    assert arguments("aten::mm", 17) is None
    assert [a.kind for a in arguments("aten::add", 3) or ()] == ["tensor", "any", "scalar"]


@pytest.mark.parametrize("name", ["linear", "conv2d", "addmm", "native_layer_norm", "to"])
def test_schemas_are_those_of_the_installed_pytorch(name: str) -> None:
    pytest.importorskip("torch")
    import torch

    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}"):
        if str(schema).startswith("aten::to.prim"):
            continue  # TorchScript's own
        tensors = tuple("Tensor" in str(a.type) for a in schema.arguments)
        found = arguments(name, len(tensors), tensors) or ()
        assert [a.name for a in found] == [a.name for a in schema.arguments]


def test_a_list_of_tensors_without_shapes_has_unknown_bytes() -> None:
    """PyTorch writes a list of more than 30 tensors as an empty one (findings/)."""
    call = parse(text("aten::_foreach_add_", [[], []], ["TensorList", "Scalar"], None, ["", "1."]))
    cost, reason = perf.cost(call)
    assert cost is None or cost.bytes is None
    assert cost is None or cost.flops is None
    assert reason
