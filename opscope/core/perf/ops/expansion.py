"""Ops that make a larger tensor, and their inverses: padding, repetition, windows, scatters.

The smaller side is read or written once, the larger side as a whole. Of the inverse, only elements that are
added to another element count FLOPs.
"""

from __future__ import annotations

from opscope.core.perf.registry import CannotKnow, Cost, op, variant, word_of
from opscope.core.perf.shapes import (
    NO_OUTPUTS,
    NO_SHAPES,
    NO_SIZE,
    axes,
    cost,
    distinct_tensors,
    int_param,
    ints_param,
    knows_params,
    need,
    numel,
    output,
    product,
    sizes,
    span,
    spread,
    tensors,
    touched,
)
from opscope.core.schema import OpCall, TensorSpec


@op("aten::unfold_copy", family="copy", source="the whole is read, every window written")
def unfold_copy(call: OpCall) -> Cost:
    """Windows of ``size`` every ``step`` along one dimension; they overlap if the step is smaller."""
    x = need(call, 0, "input")
    out = output(call)
    keys = (ints_param(call, key) for key in ("dimension", "size", "step"))
    dim, size, step = (value[0] if value else None for value in keys)
    if out is None and dim is not None and size is not None and step:
        shape = list(sizes(x)) or [1]
        at = axes((dim,), len(shape))[0]
        shape[at] = (shape[at] - size) // step + 1
        out = TensorSpec(x.dtype, (*shape, size) if x.shape else (size,))
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
        "diagonal": "aten::diagonal_copy",
        "from_diagonal": "aten::diag_embed aten::diag aten::diagflat",
        "interleave": "aten::repeat_interleave",
        "pad": "*pad*",
        "repeat": "aten::repeat aten::repeat_interleave",
        "tile": "aten::tile",
        "windows": "aten::im2col",
    },
)
def widen(call: OpCall) -> Cost:
    """Read the input, or the part that stays, once; write the result."""
    x = need(call, 0, "input")
    out = output(call) or _widen(call, x)
    if out is None:
        return cost([x], None, reason=NO_SIZE)
    if variant(call, "diagonal") or variant(call, "pad") or variant(call, "from_diagonal"):
        return cost([span(x, min(touched(x), numel(out)))], [out])
    return cost([x], [out])


def _widen(call: OpCall, x: TensorSpec) -> TensorSpec | None:
    try:
        shape = sizes(x)
    except CannotKnow:
        return None
    if variant(call, "diagonal") or variant(call, "from_diagonal"):
        return _diagonal(call, x, shape)
    repeats = ints_param(call, "repeats")
    repeats = ints_param(call, "dims") if repeats is None else repeats
    if repeats is not None and (variant(call, "repeat") or variant(call, "tile")):
        if variant(call, "interleave"):
            return TensorSpec(x.dtype, (product(shape) * repeats[0],))
        rank = max(len(repeats), len(shape))
        left = (1,) * (rank - len(shape)) + shape
        right = (1,) * (rank - len(repeats)) + repeats
        return TensorSpec(x.dtype, tuple(a * b for a, b in zip(left, right, strict=True)))
    if variant(call, "windows"):
        return _windows(call, x, shape)
    pads = ints_param(call, "pad") or ints_param(call, "padding")
    if pads is not None and variant(call, "pad") and len(pads) % 2 == 0:
        grown = list(shape)
        for pair in range(min(len(pads) // 2, len(shape))):
            grown[-1 - pair] += pads[2 * pair] + pads[2 * pair + 1]
        return TensorSpec(x.dtype, tuple(max(n, 0) for n in grown))
    return None


def _windows(call: OpCall, x: TensorSpec, shape: tuple[int, ...]) -> TensorSpec | None:
    """Return the columns of an image's windows: [N, C·kernel, places]."""
    kernel = ints_param(call, "kernel_size")
    if kernel is None or len(shape) < 3:
        return None
    kernel, step, pads, apart = (
        spread(ints_param(call, key), 2, default)
        for key, default in (("kernel_size", 1), ("stride", 1), ("padding", 0), ("dilation", 1))
    )
    places = product(
        (size + 2 * pad - gap * (width - 1) - 1) // pace + 1
        for size, width, pace, pad, gap in zip(shape[-2:], kernel, step, pads, apart, strict=True)
    )
    return TensorSpec(x.dtype, (*shape[:-3], shape[-3] * product(kernel), places))


def _diagonal(call: OpCall, x: TensorSpec, shape: tuple[int, ...]) -> TensorSpec | None:
    """Return the diagonal of matrices (by default of the first two dimensions), or matrices around it."""
    if not knows_params(call):
        return None
    offset = int_param(call, "offset", int_param(call, "diagonal", 0))
    if variant(call, "diagonal") or (word_of(call.name) == "diag" and len(shape) == 2):
        dims = axes((int_param(call, "dim1", 0), int_param(call, "dim2", 1)), len(shape))
        rows, columns = (shape[dim] for dim in dims)
        length = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
        kept = tuple(n for dim, n in enumerate(shape) if dim not in dims)
        return TensorSpec(x.dtype, (*kept, length))
    if word_of(call.name) == "diagflat":
        shape = (product(shape),)
    side = shape[-1] + abs(offset)
    return TensorSpec(x.dtype, (*shape[:-1], side, side))


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
        "image": "aten::col2im",
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
    sized = variant(call, "pad") or variant(call, "nested")  # only the input shows the size
    if out is None and sized and len(operands) > 1:
        out = operands[1]
    if out is None and size is not None:
        out = TensorSpec(operands[0].dtype, size)
    kernel, whole = ints_param(call, "kernel_size"), ints_param(call, "output_size")
    if out is None and variant(call, "image") and kernel is not None and whole is not None:
        *lead, columns, _ = sizes(operands[0])
        kernel = spread(kernel, 2, 1)
        out = TensorSpec(operands[0].dtype, (*lead, columns // product(kernel), *whole))
    # overlapping windows are summed: one addition per element of the windows
    added = 0
    if variant(call, "col2im"):
        added = numel(operands[0])
    elif (
        variant(call, "pad") and out is not None
    ):  # the padding's elements are added to the elements that they repeat
        added = max(numel(operands[0]) - numel(out), 0)
    reads = distinct_tensors(call)[: 1 if sized else 2]
    return cost(
        reads,
        None if out is None else [out],
        vector=added,
        dtype=operands[0].dtype,
        reason=NO_SIZE,
    )
