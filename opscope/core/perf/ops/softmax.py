"""Softmax and log-softmax: maximum, subtraction, exponential, sum and division."""

from __future__ import annotations

from opscope.core.perf.registry import Cost, backward_of, op, variant
from opscope.core.perf.shapes import (
    as_ints,
    axes,
    cost,
    dtype_param,
    need,
    numel,
    product,
    result,
    sizes,
    tensors,
)
from opscope.core.schema import OpCall


def _rows(call: OpCall, shape: tuple[int, ...]) -> int:
    """Return the number of normalised rows; along the last dimension if the trace does not record it."""
    dim = as_ints(call.param("dim", call.param("axis")))
    axis = axes(dim, len(shape))[0] if dim and shape else len(shape) - 1
    return product(shape) // max(shape[axis] if shape else 1, 1)


@op(
    "aten::softmax",
    "aten::_softmax",
    "aten::_safe_softmax",
    "aten::_masked_softmax",
    "aten::softmin",
    "aten::log_softmax",
    "aten::_log_softmax",
    "aten::gumbel_softmax",
    "aten::special_softmax",
    "aten::special_log_softmax",
    "aten::_nested_tensor_softmax_with_shape",
    family="softmax",
    source="5 per element less 2 per row (max n−1, subtract n, exp n, add n−1, divide n); "
    "log-softmax subtracts the row's logarithm instead of dividing: 1 more per row",
    variants={"log": "*log*"},
)
def softmax(call: OpCall) -> Cost:
    """Per row: max n−1, subtract n, exp n, sum n−1, divide (or subtract the logarithm) n."""
    x = need(call, 0, "input")
    shape = sizes(x)
    rows = _rows(call, shape)
    flops = max(5 * product(shape) - (1 if variant(call, "log") else 2) * rows, 0)
    kind = "f32" if call.param("half_to_float") is True else dtype_param(call, x.dtype)
    reads = [x, *(t for t in tensors(call)[1:2] if t.dtype == "bool")]
    return cost(reads, [result(call, shape, kind)], vector=flops, dtype=x.dtype)


@op(
    "aten::_softmax_backward_data",
    "aten::_log_softmax_backward_data",
    "aten::_masked_softmax_backward",
    family="softmax",
    source="4 per element less 1 per row",
)
def softmax_backward(call: OpCall) -> Cost:
    """dy·y n, sum n−1, subtract n, multiply n; log-softmax: sum n−1, exp n, multiply n, subtract n."""
    grad, y = need(call, 0, "gradient"), need(call, 1, "output")
    shape = sizes(grad)
    flops = max(4 * product(shape) - _rows(call, shape), 0)
    return cost([grad, y], [result(call, shape, grad.dtype)], vector=flops, dtype=grad.dtype)


@backward_of("aten::softmax", "aten::_softmax", "aten::log_softmax", "aten::_log_softmax")
def softmax_gradient(call: OpCall) -> tuple[Cost, Cost]:
    """The backward op's cost, from the forward's input."""
    x = need(call, 0, "input")
    flops = max(4 * numel(x) - _rows(call, sizes(x)), 0)
    return cost([x, x], [x], vector=flops, dtype=x.dtype), Cost()
