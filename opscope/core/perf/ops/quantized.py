"""Quantised ops: products whose packed weight has no shape, and arithmetic around a scale.

A packed weight hides its sizes, but the result and the input do not: 2 FLOPs for each result and each
of the input's features, and the weight is as many elements as both. Elementwise quantised ops
dequantise each operand (2: subtract the zero point, scale), compute, and quantise (3: scale, round,
clamp).
"""

from __future__ import annotations

from typing import Final

from opscope.core.perf.registry import CannotKnow, Cost, also, lookup, op, words
from opscope.core.perf.shapes import (
    NO_OUTPUTS,
    NO_SHAPES,
    Part,
    Span,
    as_ints,
    broadcast,
    cost,
    distinct_tensors,
    need,
    need_output,
    numel,
    output,
    outputs,
    product,
    promote,
    sizes,
    tensors,
)
from opscope.core.schema import OpCall, TensorSpec

_LINEAR = words(
    """
    quantized::linear quantized::linear_relu quantized::linear_leaky_relu quantized::linear_tanh
    quantized::linear_dynamic quantized::linear_relu_dynamic quantized::linear_dynamic_fp16
    quantized::linear_relu_dynamic_fp16 quantized::linear_dynamic_fp16_unpacked_weight
    quantized::linear_with_input_q_dq_qweight_dq_output_fp32
    quantized::linear_with_input_q_dq_qweight_dq_relu_output_fp32 quantized::int4mm_packed_weight_cpu
    _quantized::linear _quantized::linear_dynamic _quantized::wrapped_quantized_linear
    _quantized::_wrapped_quantized_linear_prepacked _quantized::wrapped_fbgemm_linear_fp16_weight
    onednn::qlinear_pointwise onednn::linear_dynamic_fp16 onednn::linear_relu_dynamic_fp16
    sparse::qlinear sparse::qlinear_relu sparse::qlinear_dynamic sparse::qlinear_relu_dynamic
    aten::fbgemm_linear_int8_weight aten::fbgemm_linear_int8_weight_fp32_activation
    aten::fbgemm_linear_fp16_weight aten::fbgemm_linear_fp16_weight_fp32_activation
    aten::_mixed_dtypes_linear aten::_wrapped_quantized_linear_prepacked
    """
)


@op(*_LINEAR, family="gemm", source="2·results·input features; the weight's elements are N·K")
def packed_linear(call: OpCall) -> Cost:
    """The weight's size follows from the input's features and the result's."""
    x = need(call, 0, "input")
    out = need_output(call, "the packed weight has no shape, and the trace has no outputs")
    if not sizes(x) or not sizes(out):
        raise CannotKnow("a linear layer of a scalar")
    k, n = sizes(x)[-1], sizes(out)[-1]
    dtype = "f16" if "fp16" in call.name else "u4" if "int4" in call.name else "i8"
    return cost(
        [x, None if call.name.startswith("sparse::") else Span(dtype, n * k)],
        [out],
        matrix=2 * numel(out) * k,
        dtype=dtype if x.dtype in ("i8", "u8") else x.dtype,
        note="the bias and the scales are left out of the bytes",
    )


@op("aten::_dyn_quant_matmul_4bit", family="gemm", source="2·M·N·K, the weight packed")
def packed_matmul(call: OpCall) -> Cost:
    """K and N are parameters."""
    x = need(call, 0, "input")
    k, n = as_ints(call.param("in_features")), as_ints(call.param("out_features"))
    if k is None or n is None:
        raise CannotKnow("the trace does not record the sizes of the packed weight")
    rows = product(sizes(x)[:-1])
    out = output(call) or Span(x.dtype, rows * n[0])
    return cost(distinct_tensors(call), [out], matrix=2 * rows * k[0] * n[0], dtype=x.dtype)


_CONV = words(
    """
    quantized::conv1d quantized::conv1d_relu quantized::conv1d_dynamic quantized::conv2d
    quantized::conv2d_relu quantized::conv2d_add quantized::conv2d_add_relu quantized::conv2d_dynamic
    quantized::conv3d quantized::conv3d_relu quantized::conv3d_dynamic quantized::conv_transpose1d
    quantized::conv_transpose1d_dynamic quantized::conv_transpose2d quantized::conv_transpose2d_dynamic
    quantized::conv_transpose3d quantized::conv_transpose3d_dynamic _quantized::conv2d
    _quantized::conv2d_relu _quantized::conv3d _quantized::conv3d_relu _quantized::conv_transpose1d
    _quantized::conv_transpose2d onednn::qconv_pointwise onednn::qconv1d_pointwise
    onednn::qconv2d_pointwise onednn::qconv3d_pointwise mkldnn_prepacked::conv2d_run
    """
)


@op(*_CONV, family="conv", source="2·results·(weights an output channel)")
def packed_conv(call: OpCall) -> Cost:
    """Known where the weight is a tensor; a packed one hides its window."""
    x, out = need(call, 0, "input"), output(call)
    rank = len(sizes(x))
    w = next((t for t in tensors(call)[1:] if len(t.shape) == rank and rank > 2), None)
    if w is None or not call.name.startswith("onednn::"):
        raise CannotKnow("the packed weight hides the size of its window")
    if out is None:
        raise CannotKnow(NO_OUTPUTS)
    return cost(
        distinct_tensors(call), [out], matrix=2 * numel(out) * product(sizes(w)[1:]), dtype=w.dtype
    )


#: FLOPs an element of the op itself.
_ELEMENTWISE: Final = {
    **dict.fromkeys(words("add mul add_scalar mul_scalar add_out mul_out"), 1),
    **dict.fromkeys(words("add_scalar_out mul_scalar_out"), 1),
    **dict.fromkeys(words("add_relu mul_relu add_scalar_relu mul_scalar_relu qadd qmul"), 2),
    **dict.fromkeys(words("add_relu_out mul_relu_out add_scalar_relu_out mul_scalar_relu_out"), 2),
    **dict.fromkeys(words("threshold clamp relu6 dropout"), 1),
    **dict.fromkeys(words("sigmoid hardswish leaky_relu elu celu prelu"), 4),
    **dict.fromkeys(words("batch_norm batch_norm1d batch_norm2d batch_norm3d"), 4),
    **dict.fromkeys(
        words("batch_norm_relu batch_norm1d_relu batch_norm2d_relu batch_norm3d_relu"), 5
    ),
    **dict.fromkeys(words("layer_norm group_norm instance_norm"), 7),
    **dict.fromkeys(words("softmax"), 5),
}


@op(*(f"quantized::{name}" for name in _ELEMENTWISE), "onednn::qadd", "onednn::qmul",
    "onednn::qadd_relu", "onednn::qbatch_norm2d", family="quantize",
    source="dequantise 2 an operand, the op, quantise 3")  # fmt: skip
def quantised_elementwise(call: OpCall) -> Cost:
    """Each operand dequantised, the op's own FLOPs, the result quantised."""
    word = call.name.rsplit("::", 1)[-1].partition(".")[0]
    each = _ELEMENTWISE.get(word, _ELEMENTWISE.get(word.removeprefix("q"), 2))
    two = word.lstrip("q").startswith(("add", "mul")) and "scalar" not in word
    result = tensors(call)[-1:] if word.endswith("_out") else []
    operands = [need(call, 0, "operand"), *(tensors(call)[1:2] if two else [])]
    shape = broadcast(*map(sizes, operands))
    flops = (each + 2 * len(operands) + 3) * product(shape)
    made: list[Part] = [*result, Span(operands[0].dtype, product(shape))]
    out = output(call) or made[0]
    reads = [*(operands if result else distinct_tensors(call))]
    return cost([*reads], [out], vector=flops, dtype=promote(operands))


#: FLOPs an element of the op itself.
_ONNX: Final = {
    "QLinearAdd": 1, "QLinearMul": 1, "QLinearWhere": 1, "QLinearSigmoid": 4,
    "QLinearLeakyRelu": 2, "QLinearSoftmax": 5, "QLinearReduceMean": 1,
}  # fmt: skip


@op(*_ONNX, family="quantize", source="dequantise 2 an operand, the op, quantise 3")
def onnx_elementwise(call: OpCall) -> Cost:
    """Each tensor is followed by its scale and zero point, which have no sizes."""
    need(call, 0, "operand")
    operands = [t for t in tensors(call) if t.shape and t.dtype in ("u8", "i8", "bool")]
    if not operands:
        raise CannotKnow(NO_SHAPES)
    shape = broadcast(*map(sizes, operands))
    out: Part = output(call) or Span(operands[0].dtype, product(shape))
    each = _ONNX[call.name]
    flops = (each + 2 * len(operands)) * product(shape) + 3 * numel(output(call) or operands[0])
    return cost(distinct_tensors(call), [out], vector=flops, dtype=operands[0].dtype)


@op(
    *words(
        """
        quantized::embedding_byte quantized::embedding_4bit quantized::embedding_bag_byte
        quantized::embedding_bag_4bit quantized::embedding_bag_byte_rowwise_offsets
        quantized::embedding_bag_4bit_rowwise_offsets quantized::embedding_bag_2bit_rowwise_offsets
        """
    ),
    family="embedding",
    source="dequantise 2 an element gathered, an addition each into its bag",
)
def quantised_bag(call: OpCall) -> Cost:
    """Rows of a packed table: as wide as the result."""
    out = output(call)
    indices = next((t for t in tensors(call) if t.dtype in ("i32", "i64")), None)
    if out is None or indices is None:
        raise CannotKnow("the packed table has no shape, and the trace has no outputs")
    gathered = numel(indices) * (sizes(out)[-1] if sizes(out) else 1)
    added = max(gathered - numel(out), 0) if "bag" in call.name else 0
    bits = "u4" if "4bit" in call.name else "u8"
    reads: list[Part] = [Span(bits, gathered), indices]
    if "2bit" in call.name:
        reads = [Span("u8", gathered // 4), indices]
    return cost(reads, [out], vector=2 * gathered + added, dtype=out.dtype)


@op(
    *words(
        """
        aten::quantize_per_tensor_dynamic aten::fake_quantize_per_channel_affine
        aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams
        aten::_fake_quantize_learnable_per_tensor_affine
        aten::_fake_quantize_learnable_per_channel_affine
        aten::fused_moving_avg_obs_fake_quant aten::_fused_moving_avg_obs_fq_helper_functional
        aten::_make_per_tensor_quantized_tensor aten::_make_per_channel_quantized_tensor
        aten::int_repr aten::_saturate_weight_to_fp16
        """
    ),
    family="quantize",
    source="3 an element: scale, round, clamp; an observer's extremes 2 more",
)
def fake_quantize(call: OpCall) -> Cost:
    """As a quantisation; an observer finds the smallest and the largest besides."""
    x = need(call, 0, "input")
    name = call.name
    moves = "_make_per" in name or "int_repr" in name
    each = 0 if moves else 1 if "saturate" in name else 5 if "obs" in name else 3
    return cost(distinct_tensors(call), outputs(call) or [x], vector=each * numel(x), dtype=x.dtype)


#: FLOPs an element: extremes 2; quantising besides: scale, shift, round, clamp.
_BY_RANGE: Final = {
    "aten::_choose_qparams_per_tensor": (2, ""),
    "aten::fbgemm_linear_quantize_weight": (2 + 4 + 1, "i8"),  # and the sum of each column
    "quantized::embedding_bag_byte_prepack_with_rowwise_min_max": (4, "u8"),
    "quantized::embedding_bag_4bit_prepack_with_rowwise_min_max": (4, "u8"),
    "quantized::embedding_bag_2bit_prepack_with_rowwise_min_max": (4, "u8"),
    "quantized::embedding_bag_byte_unpack": (2, "f32"),
    "quantized::embedding_bag_4bit_unpack": (2, "f32"),
    "quantized::embedding_bag_2bit_unpack": (2, "f32"),
}


@op(*_BY_RANGE, family="quantize",
    source="extremes 2, quantise 4, dequantise 2 an element, a column's sum 1")  # fmt: skip
def by_range(call: OpCall) -> Cost:
    """Quantised by the smallest and the largest, of all or of a row, or back from that.

    A packed row ends in its scale and bias: two f32 (byte) or two f16.
    """
    x = need(call, 0, "tensor")
    entry = lookup(call.name)
    assert entry is not None
    each, made = _BY_RANGE[entry.name]
    shape = sizes(x)
    if not made:
        return cost([x], [], vector=each * numel(x), dtype=x.dtype)
    rows, wide = product(shape[:-1]), shape[-1] if shape else 1
    apart = 8 if "byte" in call.name else 4  # bytes of a row's scale and bias
    bits = 4 if "4bit" in call.name else 2 if "2bit" in call.name else 8
    writes: list[Part]
    if "unpack" in call.name:
        count = rows * max((wide - apart) * 8 // bits, 0)
        writes = [output(call) or Span(made, count)]
    elif "embedding" in call.name:
        count = numel(x)
        writes = [output(call) or Span(made, rows * (-(-wide * bits // 8) + apart))]
    else:
        count = numel(x)
        writes = [Span(made, count), Span("i32", rows)]
    return cost(distinct_tensors(call), writes, vector=each * count, dtype=x.dtype)


@op("quantized::matmul", family="gemm", source="2·M·N·K")
def quantised_matmul(call: OpCall) -> Cost:
    """Both operands are tensors here: a product as any other, of integers."""
    a, b = need(call, 0, "first operand"), need(call, 1, "second operand")
    left, right = sizes(a), sizes(b)
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
        raise CannotKnow(f"shapes do not multiply: {list(left)} and {list(right)}")
    shape = (*broadcast(left[:-2], right[:-2]), left[-2], right[-1])
    out: Part = output(call) or Span(a.dtype, product(shape))
    return cost([a, b], [out], matrix=2 * product(shape) * left[-1], dtype="i8")


@op(
    *words(
        """
        aten::fake_quantize_per_tensor_affine_cachemask_backward
        aten::fake_quantize_per_channel_affine_cachemask_backward
        """
    ),
    family="quantize",
    source="a product an element: the gradient by the mask",
)
def fake_quantize_backward(call: OpCall) -> Cost:
    """The gradient where the value was inside the range."""
    grad, mask = need(call, 0, "gradient"), need(call, 1, "mask")
    return cost([grad, mask], [output(call) or grad], vector=numel(grad), dtype=grad.dtype)


@op(
    *words(
        """
        aten::quantized_lstm aten::quantized_gru aten::quantized_lstm_cell aten::quantized_gru_cell
        aten::quantized_rnn_relu_cell aten::quantized_rnn_tanh_cell
        quantized::quantized_lstm_cell_dynamic quantized::quantized_gru_cell_dynamic
        quantized::quantized_rnn_relu_cell_dynamic quantized::quantized_rnn_tanh_cell_dynamic
        """
    ),
    family="recurrent",
    source="2 a weight and token, where the weights are not packed",
)
def packed_recurrent(call: OpCall) -> Cost:
    """The weights are in objects that have no shape."""
    raise CannotKnow("the packed weights have no shape")


@op(
    *words(
        """
        quantized::conv1d_prepack quantized::conv2d_prepack quantized::conv3d_prepack
        quantized::conv_prepack quantized::conv_transpose1d_prepack quantized::conv_transpose2d_prepack
        quantized::conv_transpose3d_prepack quantized::linear_prepack quantized::linear_prepack_fp16
        quantized::embedding_bag_prepack quantized::embedding_bag_byte_prepack
        quantized::embedding_bag_4bit_prepack quantized::embedding_bag_2bit_prepack
        _quantized::linear_prepack _quantized::conv2d_prepack _quantized::conv3d_prepack
        _quantized::_wrapped_linear_prepack aten::_wrapped_linear_prepack
        onednn::qconv_prepack onednn::qlinear_prepack onednn::linear_prepack_fp16
        mkldnn::_reorder_convolution_weight mkldnn::_reorder_linear_weight
        mkldnn::_reorder_convolution_transpose_weight mkldnn::_reorder_mkldnn_rnn_layer_weight
        mkl::_mkl_reorder_linear_weight mkldnn_prepacked::conv2d_prepack
        aten::mkldnn_reorder_conv2d_weight aten::mkldnn_reorder_conv3d_weight
        aten::fbgemm_pack_gemm_matrix_fp16 aten::fbgemm_pack_quantized_matrix
        aten::_convert_weight_to_int4pack aten::_convert_weight_to_int4pack_for_cpu
        aten::_dyn_quant_pack_4bit_weight
        quantized::linear_prepack_legacy quantized::linear_prepack_fp16_legacy sparse::qlinear_prepack
        _quantized::linear_prepack_fp16 _quantized::linear_prepack_fp16_legacy
        _quantized::linear_prepack_legacy _quantized::conv_transpose1d_prepack
        _quantized::conv_transpose2d_prepack _quantized::conv_transpose3d_prepack
        _quantized::wrapped_fbgemm_pack_gemm_matrix_fp16 aten::_mkldnn_reshape
        quantization::_FloatToBfloat16Quantized quantization::_Bfloat16QuantizedToFloat
        """
    ),
    family="copy",
    source="read and written once, packed",
)
def pack(call: OpCall) -> Cost:
    """The packed result is as large as what is read, or as it was recorded."""
    found = distinct_tensors(call)
    if not found:
        return cost(None, None, reason=NO_SHAPES)
    return cost(found, outputs(call) or found[:1])


@op("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "FakeQuantWithMinMaxVars",
    "QuantizeV2", "Dequantize", "aten::fake_quantize_per_tensor_affine",
    "aten::quantize_per_tensor", "aten::quantize_per_channel", "aten::dequantize",
    "aten::_fused_moving_avg_obs_fq_helper", "aten::fake_quantize_per_tensor_affine_cachemask",
    "aten::fake_quantize_per_channel_affine_cachemask",
    "fbgemm::FloatToFP8RowwiseQuantized",
    "fbgemm::FP8RowwiseQuantizedToFloat",
    "fbgemm::FloatToHFP8Quantized",
    "fbgemm::HFP8QuantizedToFloat",
    "fbgemm::FloatToFused8BitRowwiseQuantized",
    "fbgemm::Fused8BitRowwiseQuantizedToFloat",
    "fbgemm::FloatToBfloat16Quantized",
    "fbgemm::Bfloat16QuantizedToFloat",
    "_C::static_scaled_fp8_quant", "_C::dynamic_scaled_fp8_quant",
    "_C::dynamic_per_token_scaled_fp8_quant", family="quantize",
    source="3 an element: scale, round, clamp; back 2: subtract, scale")  # fmt: skip
def quantize(call: OpCall) -> Cost:
    """A dynamic scale takes the largest value besides: 1 more."""
    found = tensors(call)
    x = need(call, 0, "input")
    if call.name.startswith("_C::") and len(found) > 1:  # the result is the first
        x, result = found[1], found[0]
    elif call.name.startswith("fbgemm::"):
        result = output(call) or TensorSpec(
            "f32" if call.name.endswith("ToFloat") else "u8", x.shape
        )
    else:
        result = output(call) or x
    lower = call.name.lower()
    each = (
        2
        if "dequant" in lower or lower.endswith("tofloat")
        else 4
        if "dynamic" in lower or "moving" in lower
        else 3
    )
    return cost([x], [result], vector=each * numel(x), dtype=x.dtype)


also("quantized::add", "_quantized::add")
also("quantized::batch_norm", "aten::quantized_batch_norm")
