"""Copies, casts, fills, joins and layout changes: no FLOPs, the bytes that move."""

from __future__ import annotations

from opscope.core.schema import OpCall, TensorSpec

from .registry import CannotKnow, Cost, op
from .shapes import (
    Part,
    cost,
    distinct_tensors,
    ints_param,
    lists,
    numel,
    output,
    outputs,
    product,
    sizes,
    tensor_list,
    tensors,
    touched,
)


def moved(reads: list[Part] | None, writes: list[Part] | None, reason: str) -> Cost:
    """A move's cost: zero FLOPs are known even where the bytes are not."""
    return cost(reads, writes, reason=reason)


_NO_SHAPES = "the trace has no shapes for this call"


def _first(call: OpCall) -> TensorSpec | None:
    found = tensors(call)
    return found[0] if found else None


@op(
    "aten::copy_",
    "aten::copy",
    "aten::_copy_from",
    "aten::_copy_from_and_resize",
    family="copy",
    source="source read, destination written (a cast is no FLOP)",
)
def copy(call: OpCall) -> Cost:
    """The second operand is read, the first is written."""
    found = tensors(call)
    if len(found) < 2:
        return moved(None, None, _NO_SHAPES)
    if "_copy_from" in call.name:
        found = [found[1], found[0], *found[2:]]
    return moved([found[1]], [found[0]], "")


@op(
    "aten::clone",
    "aten::contiguous",
    "aten::to",
    "aten::_to_copy",
    "aten::type_as",
    "aten::_cast_Float",
    "aten::_cast_Half",
    "aten::cpu",
    "aten::pin_memory",
    "aten::_pin_memory",
    "aten::lift_fresh_copy",
    "aten::view_copy",
    "aten::expand_copy",
    "aten::permute_copy",
    "aten::transpose_copy",
    "aten::as_strided_copy",
    "aten::_reshape_copy",
    "aten::to_mkldnn",
    "aten::to_dense",
    "aten::_nested_tensor_from_mask",
    "aten::channel_shuffle",
    "aten::native_channel_shuffle",
    "aten::pixel_shuffle",
    "aten::pixel_unshuffle",
    "aten::roll",
    "aten::flip",
    "aten::fliplr",
    "aten::flipud",
    "aten::rot90",
    "aten::tril",
    "aten::triu",
    "prims::convert_element_type",
    family="copy",
    source="every element read and written once",
)
def clone(call: OpCall) -> Cost:
    """Every element read and written once; a cast is no FLOP."""
    x = _first(call)
    if x is None:
        return moved(None, None, _NO_SHAPES)
    out = output(call) or TensorSpec(x.dtype, x.shape)
    return moved([x], [out], "")


@op(
    "aten::_local_scalar_dense",
    "aten::item",
    "aten::is_nonzero",
    family="copy",
    source="one element to the host",
)
def item(call: OpCall) -> Cost:
    """One element is read and handed to the host."""
    x = _first(call)
    if x is None:
        return moved(None, None, _NO_SHAPES)
    one = TensorSpec(x.dtype, ())
    return moved([one], [one], "")


@op(
    "aten::fill_",
    "aten::zero_",
    "aten::fill",
    "aten::zero",
    "aten::zeros",
    "aten::ones",
    "aten::full",
    "aten::zeros_like",
    "aten::ones_like",
    "aten::full_like",
    "aten::new_zeros",
    "aten::new_ones",
    "aten::new_full",
    "aten::arange",
    "aten::range",
    "aten::linspace",
    "aten::logspace",
    "aten::eye",
    "aten::scalar_tensor",
    "aten::tril_indices",
    "aten::triu_indices",
    "aten::_efficientzerotensor",
    "aten::fill_diagonal_",
    "aten::hann_window",
    "aten::hamming_window",
    family="fill",
    source="every element written once",
)
def fill(call: OpCall) -> Cost:
    """The result is written; nothing is read."""
    out = output(call)
    if out is None:
        size = ints_param(call, "size")
        first = _first(call)
        if first is not None and ("new_" not in call.name):
            out = first
        elif size is not None:
            out = TensorSpec(first.dtype if first is not None else "?", size)
    if out is None:
        return moved([], None, "the trace does not record the size of the result")
    return moved([], [out], "")


@op(
    "aten::cat",
    "aten::_cat",
    "aten::concat",
    "aten::concatenate",
    "aten::stack",
    "aten::hstack",
    "aten::vstack",
    "aten::dstack",
    "aten::column_stack",
    "aten::block_diag",
    "aten::_foreach_clone",
    "aten::_chunk_cat",
    "aten::meshgrid",
    "aten::cartesian_prod",
    "aten::pad_sequence",
    "fsdp::chunk_cat",
    "fsdp::all_gather_copy_in",
    family="copy",
    source="every part read, the whole written",
)
def cat(call: OpCall) -> Cost:
    """All parts are read and written once."""
    try:
        parts = next((one for one in lists(call) if one), None) or tensor_list(call)
        count = sum(numel(t) for t in parts)
    except CannotKnow as why:
        return moved(None, None, str(why))
    writes = outputs(call)
    if not writes:
        writes = [TensorSpec(parts[0].dtype, (count,))]
    if "_diag" in call.name or "mesh" in call.name or "prod" in call.name or "pad_" in call.name:
        writes_known = outputs(call)
        if not writes_known:
            return moved([*parts], None, "the trace has no outputs")
    return moved([*parts], [*writes], "")


@op(
    "aten::split_copy",
    "aten::split_with_sizes_copy",
    "aten::unbind_copy",
    "fsdp::split_with_sizes_copy",
    "aten::unfold_copy",
    family="copy",
    source="the whole read, every part written",
)
def split_copy(call: OpCall) -> Cost:
    """All elements are read and written once."""
    x = _first(call)
    if x is None:
        return moved(None, None, _NO_SHAPES)
    try:
        count = touched(x)
    except CannotKnow as why:
        return moved(None, None, str(why))
    return moved([x], [*(outputs(call) or [TensorSpec(x.dtype, (count,))])], "")


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
    family="copy",
    source="the input read once, the larger result written",
)
def widen(call: OpCall) -> Cost:
    """The input is read once, the result written."""
    x = _first(call)
    if x is None:
        return moved(None, None, _NO_SHAPES)
    out = output(call) or _widened(call, x)
    if out is None:
        return moved([x], None, "the trace does not record the size of the result")
    return moved([x], [out], "")


def _widened(call: OpCall, x: TensorSpec) -> TensorSpec | None:
    try:
        shape = sizes(x)
    except CannotKnow:
        return None
    repeats = ints_param(call, "repeats") or ints_param(call, "dims")
    if repeats is not None and ("repeat" in call.name or "tile" in call.name):
        if "interleave" in call.name:
            return TensorSpec(x.dtype, (product(shape) * repeats[0],))
        rank = max(len(repeats), len(shape))
        left = (1,) * (rank - len(shape)) + shape
        right = (1,) * (rank - len(repeats)) + repeats
        return TensorSpec(x.dtype, tuple(a * b for a, b in zip(left, right, strict=True)))
    pads = ints_param(call, "pad") or ints_param(call, "padding")
    if pads is not None and "pad" in call.name and len(pads) % 2 == 0:
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
    "aten::replication_pad2d_backward",
    "aten::_reshape_alias_copy",
    family="copy",
    source="the gradient read, a whole tensor written",
)
def spread_back(call: OpCall) -> Cost:
    """The part is read, the whole is written (zeros around it)."""
    found = tensors(call)
    if not found:
        return moved(None, None, _NO_SHAPES)
    out = output(call)
    size = ints_param(call, "input_sizes") or ints_param(call, "input_size")
    if out is None and "_scatter" in call.name:
        out = found[0]
    if out is None and "pad" in call.name and len(found) > 1:
        out = found[1]
    if out is None and size is not None:
        out = TensorSpec(found[0].dtype, size)
    # overlapping windows are added together: one addition an element that falls on another
    added = 0
    if call.name.endswith(("col2im", "unfold_backward")):
        added = numel(found[0])
    return cost(
        distinct_tensors(call)[:2],
        None if out is None else [out],
        vector=added,
        dtype=found[0].dtype,
        reason="the trace does not record the size of the result",
    )
