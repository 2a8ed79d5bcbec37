"""One record, one meaning: the same work counts alike whatever framework tells of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core import perf
from opscope.core.analysis.ops.calls import _dtypes
from opscope.core.perf.shape_arguments import PLACES, data_arguments
from opscope.core.rangetext import parse
from opscope.core.schema import OpCall, TensorSpec

SMALL = st.integers(1, 9)


def cost(text):
    found, why = perf.cost(parse(text))
    assert found is not None, why
    return found


@given(SMALL, SMALL, SMALL, SMALL, st.integers(3, 9))
def test_a_convolution_s_backward_counts_its_bias_gradient_in_every_framework(n, c, o, k, size):
    k = min(k, size)
    side = size - k + 1
    grad, x, w = f"[{n},{o},{side},{side}]", f"[{n},{c},{size},{size}]", f"[{o},{c},{k},{k}]"
    last_grad, last_x, last_w = (
        f"[{n},{side},{side},{o}]",
        f"[{n},{size},{size},{c}]",
        f"[{k},{k},{c},{o}]",
    )
    here = "stride=[1,1], padding=[0,0], dilation=[1,1], transposed=false, output_padding=[0,0], groups=1"
    torch = cost(
        f"aten::convolution_backward(f32{grad}, f32{x}, f32{w}) {{{here}, output_mask=[false,true,true]}}"
    )
    onednn = cost(
        f"aten::mkldnn_convolution_backward_weights(f32{grad}, f32{x}) "
        f"{{weight_size=[{o},{c},{k},{k}], bias_defined=true, {here}}}"
    )
    fused = cost(
        f"_MklNativeConv2DBackpropFilterWithBias(f32{last_x}, i32[4], f32{last_grad}) -> (f32{last_w}, f32[{o}]) "
        '{strides=[1,1,1,1], padding="VALID", data_format="NHWC"}'
    )
    apart = cost(
        f"Conv2DBackpropFilter(f32{last_x}, i32[4], f32{last_grad}) -> f32{last_w} "
        '{strides=[1,1,1,1], padding="VALID", data_format="NHWC"}'
    ) + cost(f"BiasAddGrad(f32{last_grad}) -> f32[{o}]")
    forward = f"aten::conv2d(f32{x}, f32{w}, f32[{o}]) {{stride=[1,1], padding=[0,0], dilation=[1,1], groups=1}}"
    whole = perf.backward_costs(parse(forward))[0]
    work = {(one.matrix_flops, one.vector_flops) for one in (torch, onednn, fused, apart)}
    assert work == {(2 * n * side * side * o * c * k * k, n * side * side * o - o)}
    assert whole.vector_flops == torch.vector_flops
    assert torch.bytes_written == onednn.bytes_written == 4 * (o * c * k * k + o)


def test_without_a_bias_none_is_counted():
    forward = parse(
        "aten::conv2d(f32[2,3,8,8], f32[4,3,3,3], _) {stride=[1,1], padding=[0,0], dilation=[1,1], groups=1}"
    )
    assert perf.backward_costs(forward)[0].vector_flops == 0


@pytest.mark.parametrize(
    ("text", "dtypes"),
    [
        ("Conv2DBackpropInput(i32[4], bf16[3,3,3,16], bf16[8,32,32,16]) -> bf16[8,32,32,3]", "bf16"),
        ("Conv2DBackpropFilter(f16[8,32,32,3], i32[4], f16[8,32,32,16]) -> f16[3,3,3,16]", "f16"),
        ("_MklNativeConv2DBackpropFilterWithBias(f32[8,4,4,3], i32[4], f32[8,4,4,2]) -> f32[3,3,3,2]", "f32"),
        ("Sum(bf16[8,4], i32[1]) -> bf16[8]", "bf16"),
        ("Reshape(i64[8,4], i32[1]) -> i64[32]", "i64"),
        ("RandomUniform(i32[2]) -> f32[3,4]", "f32"),
        ("GatherV2(f32[9,4], i64[5], i32[]) -> f32[5,4]", "f32,i64"),
        ("ConcatV2(f16[2,3], f16[2,3], i32[]) -> f16[2,6]", "f16"),
        ("Split(i32[], f32[8,4]) -> (f32[4,4], f32[4,4])", "f32"),
        ("aten::embedding(f32[9,4], i64[5]) -> f32[5,4]", "f32,i64"),
        ("Conv2DBackpropInput(i32[4])", "i32"),
    ],
)  # fmt: skip
def test_what_only_says_a_size_is_no_dtype_of_an_op(text, dtypes):
    assert _dtypes(parse(text)) == dtypes


@given(
    st.sampled_from(sorted(PLACES)),
    st.lists(st.sampled_from(["f32", "i32", "i64", "bool"]), max_size=5),
)
def test_no_data_but_integers_is_left_out(name, dtypes):
    call = OpCall(name, tuple(TensorSpec(dtype, (2,)) for dtype in dtypes))
    kept = [one.dtype for one in data_arguments(call)]
    assert [one for one in kept if one in ("f32", "bool")] == [
        one for one in dtypes if one in ("f32", "bool")
    ]
