"""Gather, scatter, index and similar ops: bytes of the touched elements, not of the whole table."""

from __future__ import annotations

from typing import Final

from opscope.core.perf.registry import CannotKnow, Cost, op, variant
from opscope.core.perf.shapes import (
    NO_SHAPES,
    NO_SIZE,
    Part,
    Span,
    as_ints,
    axes,
    broadcast,
    cost,
    ints_param,
    lists,
    need,
    numel,
    output,
    product,
    sizes,
    span,
    tensors,
)
from opscope.core.schema import OpCall, TensorSpec


@op(
    "aten::index_select",
    "aten::gather",
    "aten::take",
    "aten::take_along_dim",
    family="index",
    source="no arithmetic; bytes of the picked elements and of the indices",
    variants={"index_select": "aten::index_select"},
)
def gather(call: OpCall) -> Cost:
    """Read as many elements as are written."""
    operands = tensors(call)
    if len(operands) < 2:
        return cost(None, None, reason=NO_SHAPES)
    x, index = operands[0], operands[1]
    out = output(call)
    try:
        if out is None:
            out = _gather(call, x, index)
        picked = min(numel(out), numel(x))
    except CannotKnow as why:
        return cost(None, None, reason=str(why))
    return cost([span(x, picked), index], [out])


def _gather(call: OpCall, x: TensorSpec, index: TensorSpec) -> TensorSpec:
    if not variant(call, "index_select"):
        return TensorSpec(x.dtype, sizes(index))
    shape = sizes(x)
    dim = as_ints(call.param("dim"))
    if dim is None and len(shape) != 1:
        raise CannotKnow("the trace does not record the dimension")
    axis = axes(dim or (0,), len(shape))[0] if shape else 0
    new = list(shape)
    if new:
        new[axis] = numel(index)
    return TensorSpec(x.dtype, tuple(new))


@op(
    "aten::index",
    "aten::_unsafe_index",
    "aten::_unsafe_masked_index",
    "aten::masked_select",
    family="index",
    source="no arithmetic; bytes of the picked elements and of the indices",
)
def index(call: OpCall) -> Cost:
    """Read as many elements as are written; the number that a mask picks is data."""
    operands = tensors(call)
    if not operands:
        return cost(None, None, reason=NO_SHAPES)
    x = operands[0]
    indices = next((tensor_list for tensor_list in lists(call) if tensor_list), operands[1:])
    out = output(call)
    try:
        if out is None:
            out = _index(call, x, indices)
        picked = min(numel(out), numel(x))
    except CannotKnow as why:
        return cost(None, None, reason=str(why))
    return cost([span(x, picked), *indices], [out])


def _index(call: OpCall, x: TensorSpec, indices: list[TensorSpec]) -> TensorSpec:
    if not indices:
        raise CannotKnow("the trace has no shapes for the indices")
    if any(t.dtype in ("bool", "u8") for t in indices):
        raise CannotKnow("how many elements a mask picks is data that no trace records")
    rest = sizes(x)
    positions = [n for n, arg in enumerate(_slots(call)) if arg is not None]
    shape = broadcast(*(sizes(t) for t in indices))
    if len(positions) != len(indices) or len(positions) > len(rest):
        positions = list(range(len(indices)))
    kept = [n for d, n in enumerate(rest) if d not in positions]
    return TensorSpec(x.dtype, (*shape, *kept))


def _slots(call: OpCall) -> tuple[object, ...]:
    for arg in call.inputs:
        if isinstance(arg, tuple):
            return arg
    return ()


#: Overloads of aten::scatter that combine the values with the existing elements.
_ADDING: Final = ("reduce", "reduce_out", "value_reduce", "value_reduce_out")


@op(
    "aten::index_put",
    "aten::_index_put_impl",
    "aten::index_copy",
    "aten::index_fill",
    "aten::index_add",
    "aten::index_reduce",
    "aten::scatter",
    "aten::scatter_add",
    "aten::scatter_reduce",
    "aten::put",
    "aten::masked_scatter",
    "aten::_unsafe_index_put",
    "aten::_unsafe_masked_index_put_accumulate",
    family="index",
    source="the values are read and written to their positions; adding forms: one addition per value",
    variants={
        "adds": "aten::index_add aten::scatter_add aten::index_reduce aten::scatter_reduce",
        "fill": "aten::index_fill",
        "in_place": "aten::_index_put_impl",
        "by_mask": "aten::masked_scatter",
    },
)
def scatter(call: OpCall) -> Cost:
    """Read and write the values; an op that is not in place also copies the whole tensor."""
    operands = tensors(call)
    base, _, overload = call.name.partition(".")
    adds = variant(call, "adds") or overload in _ADDING or call.param("accumulate") is True
    adds = adds or call.param("reduce") is not None
    if len(operands) < 2:
        if adds:
            raise CannotKnow(NO_SHAPES)
        return cost(None, None, reason=NO_SHAPES)
    x, values = operands[0], operands[-1]
    indices = operands[1:-1] or operands[1:2]
    if variant(call, "fill") or len(operands) == 2:
        indices, values = operands[1:2], operands[1]
    in_place = base.endswith("_") or variant(call, "in_place")
    try:
        count = max(numel(values), max(map(numel, indices), default=0))
        if variant(call, "fill"):
            dim = as_ints(call.param("dim"))
            shape = sizes(x)
            if dim is None:
                raise CannotKnow("the trace does not record the dimension")
            row = shape[axes(dim, len(shape))[0]] if shape else 1
            count = product(shape) // max(row, 1) * numel(indices[0])
    except CannotKnow as why:
        if adds:
            raise
        return cost(None, None, reason=str(why))
    reads: list[Part] = [*indices, values if values not in indices else None]
    if not in_place:
        reads.append(x)
    elif adds:
        reads.append(span(x, min(count, numel(x))))
    result = None
    if variant(call, "by_mask"):  # the mask may be larger than x
        result = output(call) or TensorSpec(x.dtype, broadcast(sizes(x), sizes(operands[1])))
    writes: list[Part] = [(result or x) if not in_place else span(x, min(count, numel(x)))]
    return cost(reads, writes, vector=count if adds else 0, dtype=x.dtype)


@op(
    "aten::gather_backward",
    "aten::index_select_backward",
    "aten::cummaxmin_backward",
    "aten::value_selecting_reduction_backward",
    family="index",
    source="the gradient and the indices are read, a whole tensor is written; an addition per element of "
    "the gradient, none for value_selecting_reduction, which selects each element at most once",
    variants={
        "input_second": "aten::gather_backward aten::cummaxmin_backward",
        "adds": "aten::gather_backward aten::index_select_backward aten::cummaxmin_backward",
    },
)
def gather_backward(call: OpCall) -> Cost:
    """Scatter the gradient into zeros; the input is an operand for its sizes alone, and is not read."""
    grad = need(call, 0, "gradient")
    sized = variant(call, "input_second")
    index = need(call, 2 if sized else 1, "indices")
    out = output(call)
    size = ints_param(call, "self_sizes") or ints_param(call, "sizes")
    if out is None and sized:
        out = TensorSpec(grad.dtype, need(call, 1, "input").shape)
    elif out is None and size is not None:
        out = TensorSpec(grad.dtype, size)
    return cost(
        [grad, index],
        None if out is None else [out],
        vector=numel(grad) if variant(call, "adds") else 0,
        dtype=grad.dtype,
        reason=NO_SIZE,
    )


@op("aten::_gather_sparse_backward", family="index",
    source="a coordinate per dimension is written for each index; the values are the gradient")  # fmt: skip
def gather_sparse_backward(call: OpCall) -> Cost:
    """The gradient becomes a sparse tensor's values as it is; operands are input, index, gradient."""
    x, index, grad = (need(call, n, "operand") for n in range(3))
    return cost([index], [Span("i64", len(sizes(x)) * numel(grad))])


@op("aten::masked_select_backward", family="index",
    source="the gradient and the mask are read, a whole tensor is written")  # fmt: skip
def masked_select_backward(call: OpCall) -> Cost:
    """Scatter the gradient into zeros of the size to which input and mask broadcast."""
    grad, x, mask = (need(call, n, "operand") for n in range(3))
    out = output(call)
    try:
        out = out or TensorSpec(x.dtype, broadcast(sizes(x), sizes(mask)))
    except CannotKnow as why:
        return cost([grad, mask], None, reason=str(why))
    return cost([grad, mask], [out])


@op(
    "aten::nonzero",
    "aten::argwhere",
    "aten::nonzero_static",
    "aten::nonzero_numpy",
    family="index",
    source="one comparison per element",
    variants={"padded": "aten::nonzero_static"},
)
def nonzero(call: OpCall) -> Cost:
    """Compare every element with zero; how many are found depends on the data."""
    x = need(call, 0, "input")
    out, size = output(call), call.param("size")
    if out is None and variant(call, "padded") and type(size) is int:
        out = TensorSpec("i64", (size, len(x.shape)))
    return cost(
        [x],
        None if out is None else [out],
        vector=numel(x),
        dtype=x.dtype,
        reason="how many elements are not zero is data that no trace records",
    )
