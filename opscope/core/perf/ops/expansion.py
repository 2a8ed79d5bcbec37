"""Ops that make a larger tensor, and their inverses: padding, repetition, windows, scatters.

The smaller side is read or written once, the larger side as a whole. Only elements that fall on
another element in the inverse count FLOPs (additions).
"""

from __future__ import annotations

from opscope.core.perf.registry import CannotKnow, Cost, op, variant
from opscope.core.perf.shapes import (
    NO_OUTPUTS,
    NO_SHAPES,
    NO_SIZE,
    axes,
    cost,
    distinct_tensors,
    ints_param,
    need,
    numel,
    output,
    product,
    sizes,
    tensors,
)
from opscope.core.schema import OpCall, TensorSpec


@op("aten::unfold_copy", family="copy", source="the whole is read, every window written")
def unfold_copy(call: OpCall) -> Cost:
    """Windows of ``size`` every ``step`` along one dimension; they overlap if the step is smaller."""
    x = need(call, 0, "input")
    out = output(call)
    keys = (ints_param(call, key) for key in ("dimension", "size", "step"))
    dim, size, step = (value[0] if value else None for value in keys)
    if out is None and dim is not None and size is not None and step and x.shape:
        shape = list(sizes(x))
        at = axes((dim,), len(shape))[0]
        shape[at] = (shape[at] - size) // step + 1
        out = TensorSpec(x.dtype, (*shape, size))
    return cost([x], None if out is None else [out], reason=NO_OUTPUTS)


@op(
    "aten::repeat",
    "aten::tile",
    "aten::repeat_interleave",
    "aten::constant_pad_nd",
    "aten::pad",
    "aten::_pad_circular",
    "aten::reflection_pad1d",
    "aten::reflection_pad2d",
    "aten::reflection_pad3d",
    "aten::replication_pad1d",
    "aten::replication_pad2d",
    "aten::replication_pad3d",
    "aten::im2col",
    "aten::diag_embed",
    "aten::diag",
    "aten::diagonal_copy",
    "aten::vander",
    "aten::linalg_vander",
    "aten::diagflat",
    "aten::_pad_enum",
    "aten::_jagged_to_padded_dense_forward",
    "aten::_padded_dense_to_jagged_forward",
    "aten::to_padded_tensor",
    "aten::nested_to_padded_tensor",
    "aten::_nested_from_padded",
    "aten::_nested_from_padded_tensor",
    "aten::_nested_from_padded_and_nested_example",
    family="copy",
    source="the input is read once, the larger result written",
    variants={
        "interleave": "aten::repeat_interleave",
        "pad": "*pad*",
        "repeat": "aten::repeat aten::repeat_interleave",
        "tile": "aten::tile",
    },
)
def widen(call: OpCall) -> Cost:
    """Read the input once, write the result."""
    x = need(call, 0, "input")
    out = output(call) or _widen(call, x)
    if out is None:
        return cost([x], None, reason=NO_SIZE)
    return cost([x], [out])


def _widen(call: OpCall, x: TensorSpec) -> TensorSpec | None:
    try:
        shape = sizes(x)
    except CannotKnow:
        return None
    repeats = ints_param(call, "repeats") or ints_param(call, "dims")
    if repeats is not None and (variant(call, "repeat") or variant(call, "tile")):
        if variant(call, "interleave"):
            return TensorSpec(x.dtype, (product(shape) * repeats[0],))
        rank = max(len(repeats), len(shape))
        left = (1,) * (rank - len(shape)) + shape
        right = (1,) * (rank - len(repeats)) + repeats
        return TensorSpec(x.dtype, tuple(a * b for a, b in zip(left, right, strict=True)))
    pads = ints_param(call, "pad") or ints_param(call, "padding")
    if pads is not None and variant(call, "pad") and len(pads) % 2 == 0:
        grown = list(shape)
        for pair in range(min(len(pads) // 2, len(shape))):
            grown[-1 - pair] += pads[2 * pair] + pads[2 * pair + 1]
        return TensorSpec(x.dtype, tuple(max(n, 0) for n in grown))
    return None


@op(
    "aten::slice_backward",
    "aten::select_backward",
    "aten::slice_scatter",
    "aten::select_scatter",
    "aten::diagonal_scatter",
    "aten::diagonal_backward",
    "aten::as_strided_scatter",
    "aten::unfold_backward",
    "aten::col2im",
    "aten::reflection_pad1d_backward",
    "aten::reflection_pad2d_backward",
    "aten::reflection_pad3d_backward",
    "aten::replication_pad1d_backward",
    "aten::replication_pad2d_backward",
    "aten::replication_pad3d_backward",
    "aten::trace_backward",
    "aten::masked_scatter_backward",
    "aten::_nested_select_backward",
    "aten::_reshape_alias_copy",
    family="copy",
    source="the gradient is read, a whole tensor written; an addition per element that falls on another",
    variants={
        "col2im": "aten::unfold_backward aten::col2im",
        "scatter": "*_scatter*",
        "backward": "*backward*",
        "pad": "*pad*",
        "nested": "aten::_nested_select_backward",
    },
)
def spread_back(call: OpCall) -> Cost:
    """Read the part, write the whole tensor (zeros around the part)."""
    operands = tensors(call)
    if not operands:
        return cost(None, None, reason=NO_SHAPES)
    out = output(call)
    size = ints_param(call, "input_sizes") or ints_param(call, "input_size")
    size = size or ints_param(call, "sizes")
    if out is None and variant(call, "scatter") and not variant(call, "backward"):
        out = operands[0]
    sized = variant(call, "pad") or variant(call, "nested")  # the input gives the size alone
    if out is None and sized and len(operands) > 1:
        out = operands[1]
    if out is None and size is not None:
        out = TensorSpec(operands[0].dtype, size)
    # overlapping windows are summed: one addition per element of the windows
    added = 0
    if variant(call, "col2im"):
        added = numel(operands[0])
    elif (
        variant(call, "pad") and out is not None
    ):  # the padding's elements are added to those that they repeat
        added = max(numel(operands[0]) - numel(out), 0)
    reads = distinct_tensors(call)[: 1 if sized else 2]
    return cost(
        reads,
        None if out is None else [out],
        vector=added,
        dtype=operands[0].dtype,
        reason=NO_SIZE,
    )
