"""Covariances, differences, gradients of distances, one-hot rows, and norms of parts of a tensor."""

from __future__ import annotations

from opscope.core.perf.registry import CannotKnow, Cost, op, variant
from opscope.core.perf.shapes import (
    NO_OUTPUTS,
    NO_SHAPES,
    as_ints,
    axes,
    cost,
    distinct_tensors,
    int_param,
    lists,
    need,
    numel,
    output,
    outputs,
    product,
    sizes,
    tensors,
)
from opscope.core.schema import OpCall, TensorSpec


@op(
    "aten::cov",
    "aten::corrcoef",
    family="gemm",
    source="2·V²·N, 2 per element to subtract the mean, 1 per result (a correlation 3)",
    variants={"corr": "aten::corrcoef"},
)
def covariance(call: OpCall) -> Cost:
    """Multiply the centred rows by each other; a correlation also divides by both deviations."""
    x = need(call, 0, "input")
    shape = sizes(x)
    if len(shape) > 2:
        raise CannotKnow("the input is not a matrix of variables and observations")
    variables, count = shape if len(shape) == 2 else (1, product(shape))
    square = variables * variables
    out = output(call) or TensorSpec(x.dtype, (variables, variables))
    return cost(
        distinct_tensors(call),
        [out],
        matrix=2 * square * count,
        vector=2 * product(shape) + square * (3 if variant(call, "corr") else 1),
        dtype=x.dtype,
    )


@op(
    "aten::diff",
    "aten::trapezoid",
    "aten::trapz",
    "aten::cumulative_trapezoid",
    "aten::gradient",
    family="elementwise",
    source="per element: a difference 1; a trapezoid 3, with abscissas 4; a gradient 2",
    variants={"diff": "aten::diff", "gradient": "aten::gradient"},
)
def differences(call: OpCall) -> Cost:
    """Subtract neighbours (once per order), or add them and scale by their distance."""
    x = need(call, 0, "input")
    if variant(call, "diff"):
        each = int_param(call, "n", 1)
    elif variant(call, "gradient"):
        each = 2 * max(len(outputs(call) or [x]), 1)
    else:
        each = 4 if len(tensors(call)) > 1 else 3
    return cost(
        distinct_tensors(call),
        outputs(call),
        vector=each * numel(x),
        dtype=x.dtype,
        reason=NO_OUTPUTS,
    )


@op(
    "aten::_cdist_backward",
    "aten::_pdist_backward",
    family="reduction",
    source="4 per element of each pair: difference, quotient, product, sum",
)
def distance_backward(call: OpCall) -> Cost:
    """Each pair has a gradient g and a distance d; (x − y)·g/d is added per coordinate."""
    grad, x = need(call, 0, "gradient"), need(call, 1, "points")
    flops = 4 * numel(grad) * (sizes(x)[-1] if sizes(x) else 1)
    return cost(distinct_tensors(call), [output(call) or x], vector=flops, dtype=x.dtype)


@op("aten::one_hot", family="copy", source="zeros are written, and a one per index")
def one_hot(call: OpCall) -> Cost:
    """Write one row per index; the number of classes is a parameter, or data."""
    operands = tensors(call)
    if not operands:
        return cost(None, None, reason=NO_SHAPES)
    classes = as_ints(call.param("num_classes"))
    out = output(call)
    if out is None and classes is not None and classes[0] > 0:
        out = TensorSpec("i64", (*operands[0].shape, classes[0]))
    return cost(
        [operands[0]],
        None if out is None else [out],
        reason="how many classes there are is data that no trace records",
    )


@op("aten::norm_except_dim", family="reduction", source="2 per element: square, add")
def norm_except_dim(call: OpCall) -> Cost:
    """The norms over all dimensions but one."""
    x = need(call, 0, "input")
    shape = sizes(x)
    dim = int_param(call, "dim", 0)
    kept = shape[axes((dim,), len(shape))[0]] if shape and dim >= 0 else 1
    out = output(call) or TensorSpec(x.dtype, (kept,))
    return cost([x], [out], vector=2 * product(shape), dtype=x.dtype)


@op(
    "aten::_foreach_max",
    "aten::_foreach_powsum",
    family="reduction",
    source="per element: max a comparison; powsum a power and an addition",
    variants={"powsum": "aten::_foreach_powsum"},
)
def foreach_reduction(call: OpCall) -> Cost:
    """Reduce each tensor of the list to one number."""
    operands = next((tensor_list for tensor_list in lists(call) if tensor_list), None)
    if operands is None:
        raise CannotKnow("the trace has no shapes for the list of tensors")
    outs = [TensorSpec(t.dtype, ()) for t in operands]
    count = sum(map(numel, operands))
    flops = 2 * count if variant(call, "powsum") else max(count - len(operands), 0)
    return cost(operands, outputs(call) or outs, vector=flops, dtype=operands[0].dtype)
