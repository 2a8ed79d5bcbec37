"""Costs of TensorRT's layers, from what the inspector states, against brute force."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.perf.api import cost
from opscope.core.tensorrt_layers import format_of, layers_of, myelin_parts, origins

FP16 = "Channel major FP16 format where channel % 8 == 0"


def tensor(*dims: int, form: str = FP16) -> dict[str, Any]:
    return {"Name": "t", "Dimensions": list(dims), "Format/Datatype": form}


def layer(kind: str, inputs: list[Any], outputs: list[Any], **more: Any) -> Any:
    one = {"Name": "l", "LayerType": kind, "Inputs": inputs, "Outputs": outputs, **more}
    (found,) = layers_of({"Layers": [one]})
    assert found.call is not None
    return found.call


def counted_convolution(x, kernel, maps, groups, stride, padding, dilation) -> int:
    """Multiply-adds, counted one output and one weight at a time; the padding counts, as in every tool."""
    n, c, h, w = x
    out = [
        (s + 2 * padding - dilation * (k - 1) - 1) // stride + 1
        for s, k in zip((h, w), kernel, strict=True)
    ]
    done = 0
    for _output in range(n * maps * out[0] * out[1]):
        done += sum(1 for _ in range(c // groups * kernel[0] * kernel[1]))
    return done


@given(
    st.integers(1, 2), st.sampled_from([1, 2]), st.integers(1, 3), st.integers(1, 3), st.integers(4, 7),
    st.integers(1, 3), st.integers(1, 2), st.integers(0, 2), st.integers(1, 2),
)  # fmt: skip
def test_convolutions_are_those_of_brute_force(n, groups, c, m, size, k, stride, padding, dilation):
    x, maps, kernel = (n, c * groups, size, size), m * groups, (k, k)
    out = (size + 2 * padding - dilation * (k - 1) - 1) // stride + 1
    if out < 1:
        return
    call = layer(
        "CaskConvolution", [tensor(*x)], [tensor(n, maps, out, out)], ParameterType="Convolution",
        Kernel=[k, k], PrePadding=[padding] * 2, PostPadding=[padding] * 2, Stride=[stride] * 2,
        Dilation=[dilation] * 2, OutMaps=maps, Groups=groups,
        Weights={"Type": "Half", "Count": maps * c * k * k},
    )  # fmt: skip
    found, why = cost(call)
    assert found is not None, why
    assert found.matrix_flops == 2 * counted_convolution(
        x, kernel, maps, groups, stride, padding, dilation
    )
    assert found.bytes_read == 2 * (prod(x) + maps * c * k * k)


def test_a_deconvolution_counts_its_inputs():
    call = layer(
        "CaskDeconvolutionV2", [tensor(1, 8, 4, 4)], [tensor(1, 6, 8, 8)],
        ParameterType="Convolution", Kernel=[2, 2], Stride=[2, 2], OutMaps=6, Groups=1,
        Weights={"Type": "Half", "Count": 8 * 6 * 4},
    )  # fmt: skip
    assert call.name == "trt::Deconvolution"
    assert cost(call)[0].matrix_flops == 2 * (8 * 16) * 6 * 4


def test_a_convolution_that_is_pooled_before_it_is_written_counts_what_it_computed():
    call = layer(
        "CaskConvActPool", [tensor(1, 3, 16, 16)], [tensor(1, 4, 8, 8)], ParameterType="Convolution",
        Kernel=[3, 3], PrePadding=[1, 1], PostPadding=[1, 1], Stride=[1, 1], Dilation=[1, 1],
        OutMaps=4, Groups=1, PaddingMode="kEXPLICIT_ROUND_DOWN",
    )  # fmt: skip
    assert cost(call)[0].matrix_flops == 2 * 16 * 16 * 4 * 27


def test_weights_that_contradict_the_sizes_make_the_cost_unknown():
    call = layer(
        "CaskConvolution", [tensor(1, 3, 8, 8)], [tensor(1, 4, 8, 8)], ParameterType="Convolution",
        Kernel=[3, 3], OutMaps=4, Groups=1, Weights={"Type": "Half", "Count": 109},
    )  # fmt: skip
    found, why = cost(call)
    assert found is None
    assert "states 109 weights" in why


@pytest.mark.parametrize(
    ("source", "result", "origin", "name", "each"),
    [
        ("Row major linear FP32", "Row major Int8 format", "QDQ", "trt::Quantize", 3),
        ("Row major Int8 format", "Row major linear FP16 format", "QDQ", "trt::Dequantize", 2),
        ("Row major Int8 format", "Row major Int8 format", "QDQ", "trt::Quantize", 5),
        ("Row major linear FP32", FP16, "REFORMAT", "trt::Reformat", 0),
    ],
)
def test_reformats_quantise_where_their_origin_says_so(source, result, origin, name, each):
    call = layer(
        "Reformat", [tensor(2, 8, 4, 4, form=source)], [tensor(2, 8, 4, 4, form=result)],
        ParameterType="Reformat", Origin=origin,
    )  # fmt: skip
    assert call.name == name
    assert cost(call)[0].flops == each * 256


@pytest.mark.parametrize(
    ("inputs", "output", "flops"),
    [
        ([(2, 3), (3, 5)], (2, 5), 2 * 2 * 3 * 5),
        ([(2, 3), (5, 3)], (2, 5), 2 * 2 * 3 * 5),
        ([(7, 2, 3), (7, 3, 5)], (7, 2, 5), 2 * 7 * 2 * 3 * 5),
        ([(7, 25, 64), (7, 64, 25), (1,), (1,)], (7, 25, 25), 2 * 7 * 25 * 25 * 64),
        ([(1, 4096), (4096, 1000), (1,), (1,), (1, 1000)], (1, 1000), 2 * 4096 * 1000),
        ([(1, 40, 256)], (1, 40, 1024), 2 * 40 * 256 * 1024),  # weights that are not listed
        ([(1, 3136)], (1, 1024), 2 * 3136 * 1024),
        ([(4, 5, 6)], (9, 9), None),
    ],
)
def test_products_take_the_inner_size_from_the_shapes(inputs, output, flops):
    call = layer(
        "gemm", [tensor(*one, form="Half") for one in inputs], [tensor(*output, form="Half")]
    )
    found, why = cost(call)
    assert (found and found.matrix_flops) == flops
    assert (why is None) is (flops is not None)


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "flops"),
    [
        ("__myl_AddMulCast_myl0_1", [(4, 8), (4, 8)], [(4, 8)], 2 * 32),
        ("__myl_CastReshCast_myl4_4", [(1, 1)], [(1,)], 0),
        ("__myl_MulSum_myl4_1", [(1024, 1)], [(1, 10)], None),
        ("__myl_AddCast_myl0_1", [(4, 8)], [(4,)], None),  # more goes in than comes out
        ("anything", [(4, 8)], [(4, 8)], None),
    ],
)
def test_kernels_that_myelin_generated_are_known_where_each_part_is_elementwise(
    name, inputs, outputs, flops
):
    sides = [[tensor(*one, form="Half") for one in side] for side in (inputs, outputs)]
    found, why = cost(layer("kgen", *sides, Name=name))
    assert (found and found.flops) == flops
    if flops is None:
        assert "Myelin" in why


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("Myelin", "Myelin compiled"),
        ("PluginV2DynamicExt", "plugin"),
        ("Resize", "does not state"),
        ("Zebra", "no cost model"),
    ],
)
def test_what_the_engine_does_not_state_is_unknown_with_the_reason(kind, words):
    found, why = cost(layer(kind, [tensor(1, 2)], [tensor(1, 2)]))
    assert found is None
    assert words in why


@pytest.mark.parametrize(
    ("text", "dtype", "label", "layout"),
    [
        ("Row major linear FP32", "f32", "linear", None),
        ("Row major linear FP16 format", "f16", "linear", None),
        ("Row major Int8 format", "i8", "linear", None),
        ("Row major INT8 format where column stride % 64 == 0", "i8", "linear", None),
        ("Channel major FP16 format where channel % 8 == 0", "f16", "NHWC8", (1, 3, 2, 0)),
        ("Channel major FP32 format", "f32", "NHWC", (1, 3, 2, 0)),
        ("Channel major INT8 format where channel == 4 and column stride % 32 == 0", "i8", "NHWC4", (1, 3, 2, 0)),
        ("Thirty-two wide channel vectorized row major Int8 format.", "i8", "NC/32HW32", "vectorized"),
        ("Two wide channel vectorized row major FP16 format", "f16", "NC/2HW2", "vectorized"),
        ("Thirty-two wide channel vectorized row major FP16 format with 3 spatial dimensions", "f16",
         "NC/32DHW32", "vectorized"),
        ("Float", "f32", "", None),
        ("Half", "f16", "", None),
        ("BFloat16", "bf16", "", None),
        ("Int64", "i64", "", None),
        ("FP8", "f8e4m3fn", "", None),
        ("Bool", "bool", "", None),
        ("Unknown format", "?", "", None),
        ("", "?", "", None),
    ],
)  # fmt: skip
def test_formats_are_a_dtype_and_an_arrangement(text, dtype, label, layout):
    found = format_of(text)
    assert (found.dtype, found.label) == (dtype, label)
    made = found.tensor((2, 8, 4, 4))
    assert layout in (made.minor_to_major, made.layout)
    assert made.numel == 256


@pytest.mark.parametrize(
    ("name", "metadata", "found"),
    [
        ("Conv_0 + Relu_1", None, ("Conv_0", "Relu_1")),
        ("Conv_0 + PWN(PWN(/s, /t), /m)", "", ("Conv_0", "/s", "/t", "/m")),
        ("{ForeignNode[/a...Unsqueeze_9]}", None, ("/a", "Unsqueeze_9")),
        ("w + (Unnamed Layer* 3) [Shuffle] + Conv", None, ("w", "Conv")),
        ("Reformatting CopyNode for Input Tensor 0 to Conv_0 + Relu_1", None, ()),
        ("[CONVOLUTION]-[aten_ops.convolution.default]-[/f/0] + [RELU]-[aten_ops.relu.default]-[/f/1]",
         None, ("/f/0", "/f/1")),
        ("x", "[ONNX Layer: a]\x1e[ONNX Layer: b]\x1f[ONNX Layer: a]", ("a", "b")),
        ("x", "[ONNX Layer: a[0]]", ("a[0]",)),
    ],
)  # fmt: skip
def test_origins_are_the_metadatas_or_the_names(name, metadata, found):
    assert origins(name, metadata) == found


@given(st.text(max_size=60), st.text(max_size=60) | st.none())
def test_any_name_has_origins_and_parts_that_are_texts(name, metadata):
    assert all(
        isinstance(one, str) and one for one in (*origins(name, metadata), *myelin_parts(name))
    )
