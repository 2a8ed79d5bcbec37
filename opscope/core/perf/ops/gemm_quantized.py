"""Quantised matrix products, whose packed weight has no shape.

The sizes follow from the result and the input: 2 FLOPs per result element and input feature; the
weight has (output features)·(input features) elements.
"""

from __future__ import annotations

from opscope.core.perf.registry import CannotKnow, Cost, op, variant, words
from opscope.core.perf.shapes import (
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
    product,
    sizes,
)
from opscope.core.schema import OpCall

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


@op(*_LINEAR, family="gemm", source="2·results·(input features); the weight has N·K elements",
    variants={"f16": "*fp16*", "u4": "*int4*", "sparse": "sparse::*"})  # fmt: skip
def packed_linear(call: OpCall) -> Cost:
    """Take the weight's size from the features of the input and of the result."""
    x = need(call, 0, "input")
    out = need_output(call, "the packed weight has no shape, and the trace has no outputs")
    if not sizes(x) or not sizes(out):
        raise CannotKnow("the linear layer's input or result is a scalar")
    k, n = sizes(x)[-1], sizes(out)[-1]
    dtype = "f16" if variant(call, "f16") else "u4" if variant(call, "u4") else "i8"
    return cost(
        [x, None if variant(call, "sparse") else Span(dtype, n * k)],
        [out],
        matrix=2 * numel(out) * k,
        dtype=dtype if x.dtype in ("i8", "u8") else x.dtype,
        note="the bytes leave out the bias and the scales",
    )


@op("aten::_dyn_quant_matmul_4bit", family="gemm", source="2·M·N·K, the weight packed")
def packed_matmul(call: OpCall) -> Cost:
    """2·M·N·K; K and N are parameters."""
    x = need(call, 0, "input")
    k, n = as_ints(call.param("in_features")), as_ints(call.param("out_features"))
    if k is None or n is None:
        raise CannotKnow("the trace does not record the sizes of the packed weight")
    rows = product(sizes(x)[:-1])
    out = output(call) or Span(x.dtype, rows * n[0])
    return cost(distinct_tensors(call), [out], matrix=2 * rows * k[0] * n[0], dtype=x.dtype)


@op("quantized::matmul", family="gemm", source="2·M·N·K")
def quantised_matmul(call: OpCall) -> Cost:
    """Both operands are plain tensors: an ordinary product, of integers."""
    a, b = need(call, 0, "first operand"), need(call, 1, "second operand")
    left, right = sizes(a), sizes(b)
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
        raise CannotKnow(f"shapes do not multiply: {list(left)} and {list(right)}")
    shape = (*broadcast(left[:-2], right[:-2]), left[-2], right[-1])
    out: Part = output(call) or Span(a.dtype, product(shape))
    return cost([a, b], [out], matrix=2 * product(shape) * left[-1], dtype="i8")
