"""Normalisations, forward and backward: FLOPs per element, counted from the definition.

Statistics over n numbers: mean n, subtract n, square n, add n. Normalising: multiply by 1/σ (the
subtraction is already counted), then scale and shift if there are a weight and a bias.
"""

from __future__ import annotations

from typing import Final

from opscope.core.perf.registry import Cost, backward_of, op, variant
from opscope.core.perf.shapes import (
    Part,
    as_ints,
    cost,
    distinct_tensors,
    floating,
    int_param,
    need,
    numel,
    output,
    outputs,
    product,
    sizes,
    tensors,
)
from opscope.core.schema import OpCall, TensorSpec


def _save(call: OpCall, x: TensorSpec, statistics: int) -> list[Part]:
    """Return the outputs: the recorded ones, else the result and the statistics kept for backward."""
    recorded = outputs(call)
    if recorded is not None:
        return [*recorded]
    kind = "f32" if x.dtype in ("f16", "bf16") else floating(x.dtype)
    kept = TensorSpec(kind, (statistics,))
    return [x, kept, kept] if statistics else [x]


@op(
    "aiter::_groupnorm_run",
    "aiter::groupnorm_run",
    family="norm",
    source="5 per element, and 1 each for weight and bias",
)
def aiter_group_norm(call: OpCall) -> Cost:
    """Group norm of AMD's aiter; newer versions take the result and a workspace before the input."""
    operands = tensors(call)
    if len(operands) > 4 and operands[0].shape == operands[2].shape:
        operands = operands[2:]
    x, affine = need(call, 0, "input"), operands[1:3]
    return cost([x, *affine], [x], vector=(5 + len(affine)) * numel(x), dtype=x.dtype)


@op(
    "aten::batch_norm",
    "aten::native_batch_norm",
    "aten::cudnn_batch_norm",
    "aten::miopen_batch_norm",
    "aten::_batch_norm_impl_index",
    "aten::_batch_norm_with_update",
    "aten::_batch_norm_with_update_functional",
    "aten::_batch_norm_no_update",
    "aten::_native_batch_norm_legit",
    "aten::_native_batch_norm_legit_no_training",
    "aten::_native_batch_norm_legit_functional",
    family="norm",
    source="training 5 per element, evaluation 2, and 1 each for weight and bias",
    variants={"evaluation": "*no_training *no_update"},
)
def batch_norm(call: OpCall) -> Cost:
    """Training: statistics 4, normalise 1, affine 2; evaluation: subtract, multiply, affine 2."""
    x = need(call, 0, "input")
    operands = tensors(call)
    channels = sizes(x)[1] if len(sizes(x)) > 1 else 1
    # the parameter or the op's name says that this is evaluation; cuDNN's op is called in training
    evaluation = call.param("training", call.param("train", True)) is False
    evaluation = evaluation or variant(call, "evaluation")
    affine = min(len(operands) - 1, 2) if len(operands) in (2, 3, 5) else 0
    each = (2 if evaluation else 5) + affine
    running = [] if evaluation else operands[3:5]
    writes = [*_save(call, x, 0 if evaluation else channels), *running]
    return cost(distinct_tensors(call), writes, vector=each * numel(x), dtype=x.dtype)


@op(
    "aten::native_batch_norm_backward",
    "aten::cudnn_batch_norm_backward",
    "aten::miopen_batch_norm_backward",
    "aten::batch_norm_backward",
    "aten::_batch_norm_impl_index_backward",
    family="norm",
    source="10 per element: x̂ recomputed 2, two sums 3, the data gradient 5",
)
def batch_norm_backward(call: OpCall) -> Cost:
    """x̂ 2, Σdy 1, Σdy·x̂ 2, dx = (dy − mean − x̂·mean)·scale 5."""
    x, grad = need(call, 0, "input"), need(call, 1, "gradient")
    channels = sizes(x)[1] if len(sizes(x)) > 1 else 1
    kept = outputs(call)
    weight = TensorSpec(floating(x.dtype), (channels,))
    # cuDNN's reserve, which it keeps between forward and backward, is a separate byte tensor
    mask = call.param("output_mask")
    asked = mask if isinstance(mask, tuple) and len(mask) == 3 else (True, True, True)
    if kept is None:
        kept = [t for t, want in zip((x, weight, weight), asked, strict=True) if want]
    writes = [*kept]
    return cost(
        distinct_tensors(call), writes, vector=10 * max(numel(x), numel(grad)), dtype=x.dtype
    )


@op(
    "aten::batch_norm_stats",
    "aten::batch_norm_elemt",
    "aten::batch_norm_backward_reduce",
    "aten::batch_norm_backward_elemt",
    "aten::batch_norm_update_stats",
    family="norm",
    source="the parts of batch norm, per element: statistics 4, normalise 4, backward's sums 5, its data 5",
    variants={"backward": "*backward*", "stats": "*stats*", "reduce": "*backward_reduce"},
)
def batch_norm_part(call: OpCall) -> Cost:
    """A part of synchronised batch norm, counted as in the whole op."""
    operands = tensors(call)
    x = need(call, 0, "input")
    each = 5 if variant(call, "backward") else 4
    recorded = outputs(call)
    if recorded is None and (variant(call, "stats") or variant(call, "reduce")):
        channels = sizes(x)[1] if len(sizes(x)) > 1 else 1
        kind = "f32" if x.dtype in ("f16", "bf16") else floating(x.dtype)
        asked = [call.param(key) is not False for key in ("input_g", "weight_g", "bias_g")]
        # Σdy and Σdy·x̂ for the data's gradient, and the gradients of weight and bias
        count = 2 * asked[0] + asked[1] + asked[2] if variant(call, "reduce") else 2
        recorded = [TensorSpec(kind, (channels,))] * count
    return cost(
        operands, [x] if recorded is None else recorded, vector=each * numel(x), dtype=x.dtype
    )


#: Per process and channel: the variance from 1/σ 4 (quotient, square, subtract ε, times the count), the
#: difference of the means 1, its square times n·m/(n + m) 5, added up 2, the mean (n·a + m·b)/(n + m) 4.
GATHERED: Final = 4 + 1 + 5 + 2 + 4


@op(
    "aten::batch_norm_gather_stats",
    "aten::batch_norm_gather_stats_with_counts",
    family="norm",
    source="16 per process and channel: opscope.core.perf.ops.normalization.GATHERED",
)
def batch_norm_gather(call: OpCall) -> Cost:
    """Merge each process's mean and 1/σ, [processes, channels]; the input gives the dtype alone."""
    mean, *more = tensors(call)[1:] or [need(call, 1, "mean")]
    channels = sizes(mean)[-1] if sizes(mean) else 1
    merged = outputs(call)
    if merged is None:
        kind = "f32" if mean.dtype in ("f16", "bf16") else floating(mean.dtype)
        merged = [TensorSpec(kind, (channels,))] * 2
    running = more[1:3] if len(more) > 2 else []
    flops = GATHERED * numel(mean)
    return cost([mean, *more], [*merged, *running], vector=flops, dtype=mean.dtype)


@op(
    "aten::layer_norm",
    "aten::native_layer_norm",
    "aten::group_norm",
    "aten::native_group_norm",
    "aten::instance_norm",
    "apex::fused_layer_norm",
    family="norm",
    source="5 per element, and 1 each for weight and bias",
    variants={
        "native": "aten::native_layer_norm aten::native_group_norm",
        "group": "aten::group_norm aten::native_group_norm",
        "instance": "aten::instance_norm",
    },
)
def layer_norm(call: OpCall) -> Cost:
    """Mean 1, subtract 1, square 1, add 1, multiply by 1/σ 1, weight 1, bias 1."""
    x = need(call, 0, "input")
    shape = sizes(x)
    operands = tensors(call)
    affine = min(len(operands) - 1, 2)
    over_last = call.param("normalized_shape")
    if variant(call, "group") or variant(call, "instance"):
        groups = call.param("num_groups", call.param("group", 1))
        rows = shape[0] * (int(groups) if isinstance(groups, int) else 1)
    else:
        weight = operands[1] if len(operands) > 1 else None
        over = as_ints(over_last) or (sizes(weight) if weight is not None else shape[-1:])
        rows = product(shape) // max(product(over), 1)
    native = variant(call, "native")
    writes = _save(call, x, rows if native else 0)
    return cost(distinct_tensors(call), writes, vector=(5 + affine) * product(shape), dtype=x.dtype)


@op(
    "aten::native_layer_norm_backward",
    "aten::native_group_norm_backward",
    family="norm",
    source="12 per element: x̂ recomputed 2, dy·w 1, two sums 3, dx 4, dw 1, db 1; 9 without a weight",
    variants={"group": "aten::native_group_norm_backward"},
)
def layer_norm_backward(call: OpCall) -> Cost:
    """x̂ 2, dy·w 1, Σ 1, Σ·x̂ 2, dx 4, gradients of weight and bias 2; without a weight 9."""
    grad, x = need(call, 0, "gradient"), need(call, 1, "input")
    operands = tensors(call)
    small = operands[4:]
    each = 12 if small else 9
    mask = call.param("output_mask")
    asked = mask if isinstance(mask, tuple) and len(mask) == 3 else (True, bool(small), bool(small))
    kept = small[0] if small else None
    if kept is None and isinstance(call.param("C"), int) and variant(call, "group"):
        kept = TensorSpec(x.dtype, (int_param(call, "C"),))
    results = [t for t, want in zip((x, kept, kept), asked, strict=True) if want and t is not None]
    writes = outputs(call) or results
    return cost(distinct_tensors(call), writes, vector=each * numel(grad), dtype=x.dtype)


@op(
    "aten::rms_norm",
    "aten::_fused_rms_norm",
    "vllm::rms_norm",
    "_C::rms_norm",
    "quack::_rmsnorm_fwd",
    "aiter::rms_norm",
    "aiter::rmsnorm2d_fwd",
    "aiter::rmsnorm2d_fwd_ck",
    family="norm",
    source="4 per element: square, add, multiply by 1/rms, weight; 3 without a weight",
    variants={"result_first": "vllm::rms_norm _C::rms_norm", "aten_fused": "aten::_fused_rms_norm"},
)
def rms_norm(call: OpCall) -> Cost:
    """Square 1, add 1, multiply 1, weight 1; a root and a division per row are not counted."""
    operands = tensors(call)
    if variant(call, "result_first") and len(operands) > 2:  # the result is the first argument
        out, x, weight = operands[0], operands[1], operands[2]
        return cost([x, weight], [out], vector=4 * numel(x), dtype=x.dtype)
    x = need(call, 0, "input")
    weight_there = len(operands) > 1
    writes = _save(call, x, 0)
    if variant(call, "aten_fused") and outputs(call) is None:
        over = as_ints(call.param("normalized_shape")) or (
            sizes(operands[1]) if weight_there else sizes(x)[-1:]
        )
        writes = _save(call, x, numel(x) // max(product(over), 1))[:2]  # one statistic: 1/rms
    return cost(operands, writes, vector=(4 if weight_there else 3) * numel(x), dtype=x.dtype)


@op("_C::fused_add_rms_norm", "vllm::fused_add_rms_norm", family="norm", source="5 per element")
def add_rms_norm(call: OpCall) -> Cost:
    """Add the residual and normalise; both tensors are overwritten."""
    x, residual, weight = (need(call, n, "operand") for n in range(3))
    return cost([x, residual, weight], [x, residual], vector=5 * numel(x), dtype=x.dtype)


@op("aten::_fused_rms_norm_backward", family="norm",
    source="9 per element: x̂ recomputed 1, dy·w 1, the sum 2, dx 3, dw 2; 6 without a weight")  # fmt: skip
def rms_norm_backward(call: OpCall) -> Cost:
    """x̂ 1, dy·w 1, Σ 2, dx 3, dw 2; operands are gradient, input, 1/rms and the weight, if any."""
    grad, x = need(call, 0, "gradient"), need(call, 1, "input")
    weight = tensors(call)[3:4]
    writes = outputs(call) or [x, *weight]
    flops = (9 if weight else 6) * numel(grad)
    return cost(distinct_tensors(call), writes, vector=flops, dtype=x.dtype)


@op(
    "aten::_weight_norm_interface_backward",
    "aten::_weight_norm_differentiable_backward",
    family="norm",
    source="6 per element: Σ dw·v 2, dv = g/‖v‖·(dw − v·Σ/‖v‖²) 4",
)
def weight_norm_backward(call: OpCall) -> Cost:
    """The gradients of the direction and of the length."""
    grad, v, g = (need(call, n, "operand") for n in range(3))
    return cost(
        distinct_tensors(call), outputs(call) or [v, g], vector=6 * numel(v), dtype=grad.dtype
    )


@op("aten::local_response_norm", family="norm", source="the window's squares, a power, a division")
def local_response_norm(call: OpCall) -> Cost:
    """Square 1, the window's running sum 2, scale, add, power and divide 4."""
    x = need(call, 0, "input")
    return cost([x], [output(call) or x], vector=7 * numel(x), dtype=x.dtype)


@op(
    "aten::renorm",
    "aten::normalize",
    "aten::_weight_norm",
    "aten::_weight_norm_interface",
    family="norm",
    source="3 per element: square, add, scale",
    variants={"with_norms": "aten::_weight_norm_interface"},
)
def renorm(call: OpCall) -> Cost:
    """A norm along one dimension, and the scaling."""
    x = need(call, 0, "input")
    norms = tensors(call)[1:2] if variant(call, "with_norms") else []
    return cost(
        distinct_tensors(call), outputs(call) or [x, *norms], vector=3 * numel(x), dtype=x.dtype
    )


@backward_of("aten::batch_norm", "aten::cudnn_batch_norm", "aten::native_batch_norm")
def batch_norm_gradient(call: OpCall) -> tuple[Cost, Cost]:
    """Data gradient 7 per element (x̂ recomputed 2, dx 5), weight and bias 3."""
    x = need(call, 0, "input")
    weight = tensors(call)[1:2]
    return (
        cost([x, x, *weight], [x], vector=7 * numel(x), dtype=x.dtype),
        cost([], [*weight, *weight], vector=3 * numel(x), dtype=x.dtype),
    )


@backward_of("aten::layer_norm", "aten::native_layer_norm", "aten::group_norm")
def layer_norm_gradient(call: OpCall) -> tuple[Cost, Cost]:
    """Data gradient 10 per element (9 without a weight), weight and bias 2."""
    x = need(call, 0, "input")
    weight = tensors(call)[1:2]
    return (
        cost([x, x, *weight], [x], vector=(10 if weight else 9) * numel(x), dtype=x.dtype),
        cost([], [*weight, *weight], vector=2 * numel(x) if weight else 0, dtype=x.dtype),
    )
