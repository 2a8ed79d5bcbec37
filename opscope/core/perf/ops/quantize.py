"""Quantising, dequantising, and elementwise ops on quantised tensors.

A quantised elementwise op dequantises each operand (2: subtract the zero point, scale), computes, and
quantises (3: scale, round, clamp).
"""

from __future__ import annotations

from typing import Final

from opscope.core.perf.registry import CannotKnow, Cost, also, lookup, op, variant, word_of, words
from opscope.core.perf.shapes import (
    NO_SHAPES,
    Part,
    Span,
    broadcast,
    cost,
    distinct_tensors,
    need,
    numel,
    output,
    outputs,
    product,
    promote,
    sizes,
    tensors,
)
from opscope.core.schema import OpCall, TensorSpec

#: FLOPs per element of the op itself.
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


#: The ops with two tensor operands; the others have one tensor operand, and perhaps a number.
_OF_TWO: Final = words(
    """
    quantized::add quantized::mul quantized::add_out quantized::mul_out quantized::add_relu
    quantized::mul_relu quantized::add_relu_out quantized::mul_relu_out quantized::qadd quantized::qmul
    onednn::qadd onednn::qmul onednn::qadd_relu
    """
)


@op(*(f"quantized::{name}" for name in _ELEMENTWISE), "onednn::qadd", "onednn::qmul",
    "onednn::qadd_relu", "onednn::qbatch_norm2d", family="quantize",
    source="per element: dequantise 2 per operand, the op, quantise 3",
    variants={"two_operands": " ".join(_OF_TWO), "result_given": "quantized::*_out"})  # fmt: skip
def quantised_elementwise(call: OpCall) -> Cost:
    """Dequantise each operand, compute the op, quantise the result."""
    word = word_of(call.name)
    each = _ELEMENTWISE.get(word, _ELEMENTWISE.get(word.removeprefix("q"), 2))
    result = tensors(call)[-1:] if variant(call, "result_given") else []
    more = tensors(call)[1:2] if variant(call, "two_operands") else []
    operands = [need(call, 0, "operand"), *more]
    shape = broadcast(*map(sizes, operands))
    flops = (each + 2 * len(operands) + 3) * product(shape)
    made: list[Part] = [*result, Span(operands[0].dtype, product(shape))]
    out = output(call) or made[0]
    reads = [*(operands if result else distinct_tensors(call))]
    return cost([*reads], [out], vector=flops, dtype=promote(operands))


#: FLOPs per element of the op itself.
_ONNX: Final = {
    "QLinearAdd": 1, "QLinearMul": 1, "QLinearWhere": 1, "QLinearSigmoid": 4,
    "QLinearLeakyRelu": 2, "QLinearSoftmax": 5, "QLinearReduceMean": 1,
}  # fmt: skip


@op(*_ONNX, family="quantize", source="per element: dequantise 2 per operand, the op, quantise 3")
def onnx_elementwise(call: OpCall) -> Cost:
    """In the inputs, a scale and a zero point follow each tensor; both are scalars."""
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
    source="3 per element: scale, round, clamp; an observer's minimum and maximum 2 more; saturate 1",
    variants={
        "moves": "aten::_make_per_* aten::int_repr",
        "saturates": "aten::_saturate_weight_to_fp16",
        "observes": "aten::fused_moving_avg_obs_* aten::_fused_moving_avg_obs_*",
    },
)
def fake_quantize(call: OpCall) -> Cost:
    """Quantise; an observer also finds the minimum and the maximum."""
    x = need(call, 0, "input")
    if variant(call, "moves"):
        each = 0
    else:
        each = 1 if variant(call, "saturates") else 5 if variant(call, "observes") else 3
    return cost(distinct_tensors(call), outputs(call) or [x], vector=each * numel(x), dtype=x.dtype)


#: (FLOPs per element, result's dtype). Minimum and maximum 2; quantising 4: scale, shift, round, clamp.
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
    source="per element: minimum and maximum 2, quantise 4, dequantise 2, column sum 1",
    variants={"byte": "*byte*", "4bit": "*4bit*", "2bit": "*2bit*", "unpack": "*unpack*",
              "rows": "quantized::embedding_*"})  # fmt: skip
def by_range(call: OpCall) -> Cost:
    """Quantise by the minimum and the maximum, of the tensor or of each row, or dequantise again.

    A packed row ends in its scale and bias: two f32 (byte) or two f16.
    """
    x = need(call, 0, "tensor")
    entry = lookup(call.name)
    assert entry is not None
    each, dtype_made = _BY_RANGE[entry.name]
    shape = sizes(x)
    if not dtype_made:
        return cost([x], [], vector=each * numel(x), dtype=x.dtype)
    rows, wide = product(shape[:-1]), shape[-1] if shape else 1
    apart = 8 if variant(call, "byte") else 4  # bytes of a row's scale and bias
    bits = 4 if variant(call, "4bit") else 2 if variant(call, "2bit") else 8
    writes: list[Part]
    if variant(call, "unpack"):
        count = rows * max((wide - apart) * 8 // bits, 0)
        writes = [output(call) or Span(dtype_made, count)]
    elif variant(call, "rows"):
        count = numel(x)
        writes = [output(call) or Span(dtype_made, rows * (-(-wide * bits // 8) + apart))]
    else:
        count = numel(x)
        writes = [Span(dtype_made, count), Span("i32", rows)]
    return cost(distinct_tensors(call), writes, vector=each * count, dtype=x.dtype)


@op(
    *words(
        """
        aten::fake_quantize_per_tensor_affine_cachemask_backward
        aten::fake_quantize_per_channel_affine_cachemask_backward
        """
    ),
    family="quantize",
    source="a product per element: the gradient by the mask",
)
def fake_quantize_backward(call: OpCall) -> Cost:
    """Pass the gradient on where the value was inside the range."""
    grad, mask = need(call, 0, "gradient"), need(call, 1, "mask")
    return cost([grad, mask], [output(call) or grad], vector=numel(grad), dtype=grad.dtype)


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
    source="3 per element: scale, round, clamp, with a computed scale 4; dequantise 2: subtract, scale",
    variants={
        "result_first": "_C::*",
        "fbgemm": "fbgemm::*",
        "back": "Dequantize* aten::dequantize fbgemm::*ToFloat",
        "finds_scale": "Dynamic* aten::_fused_moving_avg_obs_fq_helper _C::dynamic_*",
        "to_float": "fbgemm::*ToFloat",
    })  # fmt: skip
def quantize(call: OpCall) -> Cost:
    """Quantise or dequantise; a dynamic scale also needs the largest value: 1 more."""
    operands = tensors(call)
    x = need(call, 0, "input")
    if variant(call, "result_first") and len(operands) > 1:
        x, result = operands[1], operands[0]
    elif variant(call, "fbgemm"):
        result = output(call) or TensorSpec("f32" if variant(call, "to_float") else "u8", x.shape)
    else:
        result = output(call) or x
    each = 2 if variant(call, "back") else 4 if variant(call, "finds_scale") else 3
    return cost([x], [result], vector=each * numel(x), dtype=x.dtype)


also("quantized::add", "_quantized::add")
also("quantized::batch_norm", "aten::quantized_batch_norm")
