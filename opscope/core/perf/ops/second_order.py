"""Double backward and forward-mode derivatives, counted from the formulas that they compute.

A convolution is linear in its data and in its weight, so each term of its second derivative is again a
convolution of the same sizes. The elementwise rules count the operations of the formula written beside each;
a sigmoid counts as 4.
"""

from __future__ import annotations

from typing import Final

from opscope.core.perf.registry import CannotKnow, Cost, also, op, variant
from opscope.core.perf.shapes import cost, multiply_adds, need, numel, product, sizes
from opscope.core.schema import OpCall, TensorSpec

from .conv import gradients
from .linalg import FACTORS


@op(
    "aten::_convolution_double_backward",
    family="conv",
    source="the forward's multiply-adds per term: two for the gradient's gradient, one for each other result",
)
def conv_double_backward(call: OpCall) -> Cost:
    """ggO = ggI∗W + I∗ggW + ggb; the weight's gradient comes from ggI, the data's from ggW."""
    leaves = [*call.input_leaves(), *[None] * 6][:6]
    ggi, ggw, ggb, grad, w, x = leaves
    if grad is None or w is None or x is None:
        raise CannotKnow("the trace has no shape for the gradient, the weight or the input")
    mask = call.param("output_mask", (True, True, True))
    if not isinstance(mask, tuple) or len(mask) < 3:
        raise CannotKnow("the trace does not record which gradients were requested (output_mask)")
    figures = gradients(grad, x, w, call.param("transposed") is True)[0]
    terms = [ggi is not None, ggw is not None]
    products = (
        bool(mask[0]) * sum(terms) + (bool(mask[1]) and terms[0]) + (bool(mask[2]) and terms[1])
    )
    additions = max(sum(terms) + (ggb is not None) - 1, 0) * bool(mask[0]) * numel(grad)
    writes = [grad if mask[0] and any((*terms, ggb is not None)) else None]
    writes += [w if mask[1] and terms[0] else None, x if mask[2] and terms[1] else None]
    reads = [ggi, ggw, ggb]
    reads.append(w if mask[0] and terms[0] else None)
    reads.append(x if mask[0] and terms[1] else None)
    reads.append(grad if (mask[1] and terms[0]) or (mask[2] and terms[1]) else None)
    dtype = (
        max(figures.by_dtype, key=lambda kind: figures.by_dtype[kind])
        if figures.by_dtype
        else grad.dtype
    )
    matrix = products * multiply_adds(figures, dtype)
    return cost(reads, writes, matrix=matrix, vector=additions, dtype=dtype)


#: FLOPs per element of the gated half. With σ = sigmoid(b):
#: glu_jvp: da·σ + y·(db − σ·db).
#: glu_backward_jvp: r = db − db·σ; d = dg·σ + ga·r; d·(a − a·σ) + ga·(da − da·σ − a·σ·r).
GATED: Final = {"glu_jvp": 4 + 5, "glu_backward_jvp": 4 + 2 + 3 + 3 + 6}


@op(*(f"aten::{name}" for name in GATED), family="activation",
    source="FLOPs per element of the half: opscope.core.perf.ops.second_order.GATED",
    variants={"backward": "aten::glu_backward_jvp"})  # fmt: skip
def gated(call: OpCall) -> Cost:
    """The directional derivative of a gated linear unit or of its gradient."""
    jvp = not variant(call, "backward")
    names = ("result", "input", "tangent") if jvp else (
        "gradient of the input", "gradient", "input", "gradient's tangent", "tangent")  # fmt: skip
    operands = [need(call, index, name) for index, name in enumerate(names)]
    half = numel(operands[0] if jvp else operands[1])
    each = GATED["glu_jvp" if jvp else "glu_backward_jvp"]
    part = TensorSpec(operands[0].dtype, (half,))  # of one operand only a half is read
    reads = [operands[0], part, operands[2]] if jvp else [part, *operands[2:]]
    return cost([*reads], [operands[0]], vector=each * half, dtype=operands[0].dtype)


also("aten::gelu_backward", "aten::infinitely_differentiable_gelu_backward")


@op("aten::matrix_exp_backward", family="linalg",
    source="the exponential of the block matrix [[Aᵀ, G], [0, Aᵀ]], of twice the size")  # fmt: skip
def matrix_exp_backward(call: OpCall) -> Cost:
    """Functions of Matrices (N. Higham), 3.2: the derivative is the upper right block."""
    x, grad = need(call, 0, "matrix"), need(call, 1, "gradient")
    shape = sizes(x)
    if len(shape) < 2:
        raise CannotKnow(f"not a matrix: {list(shape)}")
    flops = product(shape[:-2]) * FACTORS["matrix_exp"](2 * shape[-2], 2 * shape[-1])
    return cost([x, grad], [x], matrix=flops, dtype=x.dtype)


#: FLOPs per element: 3 for x·(1/s) + z and rounding, 2 for the comparison with both ends, 1 for the masked
#: gradient; 6 for the scale (q − z, ·s, − x, ·(1/s), · gradient, · factor); 2 for the zero point (·(−s), ·
#: factor); 2 for the sums of both.
LEARNABLE: Final = 3 + 2 + 1 + 6 + 2 + 2


@op("aten::_fake_quantize_learnable_per_tensor_affine_backward",
    "aten::_fake_quantize_learnable_per_channel_affine_backward", family="quantize",
    source="16 per element: opscope.core.perf.ops.second_order.LEARNABLE")  # fmt: skip
def learnable_backward(call: OpCall) -> Cost:
    """The input's gradient, and summed gradients of scale and zero point (Learned Step Size Quantization)."""
    grad, x, scale, zero = (need(call, n, "operand") for n in range(4))
    return cost(
        [grad, x, scale, zero], [x, scale, zero], vector=LEARNABLE * numel(x), dtype=x.dtype
    )
