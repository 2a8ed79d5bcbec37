"""Copies, casts, fills, joins and layout changes: no FLOPs, the bytes that move."""

from __future__ import annotations

from dataclasses import replace

from opscope.core.schema import OpCall, TensorSpec

from .registry import CannotKnow, Cost, op, words
from .shapes import (
    Part,
    Span,
    axes,
    cost,
    distinct_tensors,
    dtype_param,
    ints_param,
    lists,
    numel,
    output,
    outputs,
    product,
    sizes,
    span,
    tensor_list,
    tensors,
    touched,
)


def moved(reads: list[Part] | None, writes: list[Part] | None, reason: str) -> Cost:
    """A move's cost: zero FLOPs are known even where the bytes are not."""
    return cost(reads, writes, reason=reason)


_NO_SHAPES = "the trace has no shapes for this call"
_NO_OUTPUTS = "the trace has no outputs"
#: Casts whose name is the dtype.
_CASTS = {
    f"aten::_cast_{word}": dtype
    for word, dtype in (
        ("Float", "f32"), ("Half", "f16"), ("Byte", "u8"), ("Char", "i8"), ("Double", "f64"),
        ("Int", "i32"), ("Long", "i64"), ("Short", "i16"),
    )
} | {"aten::chalf": "c32"}  # fmt: skip


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
    *(
        f"aten::{name}_copy"
        for name in words(
            """
            lift_fresh view permute transpose _reshape alias detach squeeze unsqueeze t values indices
            crow_indices col_indices ccol_indices row_indices view_as_complex view_as_real _conj
            _neg_view _values _indices _fw_primal _make_dual _nested_view_from_buffer
            _nested_view_from_jagged _nested_get_values
            """
        )
    ),
    "aten::_lazy_clone",
    "aten::to_mkldnn_backward",
    "aten::cuda",
    "aten::_to_cpu",
    "aten::as_tensor",
    "aten::_autocast_to_full_precision",
    "aten::_autocast_to_reduced_precision",
    "aten::chalf",
    "aten::_cast_Byte",
    "aten::_cast_Char",
    "aten::_cast_Double",
    "aten::_cast_Int",
    "aten::_cast_Long",
    "aten::_cast_Short",
    "aten::_mkldnn_transpose",
    "aten::fft_fftshift",
    "aten::fft_ifftshift",
    "aten::lu_unpack",
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
    if "lu_unpack" in call.name:
        writes = outputs(call)
        return moved([*distinct_tensors(call)], None if writes is None else [*writes], _NO_OUTPUTS)
    dtype = dtype_param(call, _CASTS.get(call.name.rstrip("_"), x.dtype))
    out = output(call) or TensorSpec(dtype, x.shape)
    return moved([x], [out], "")


@op(
    *(f"aten::{name}_copy" for name in ("select", "slice", "narrow", "as_strided", "expand")),
    family="copy",
    source="what is taken read and written once",
)
def part_copy(call: OpCall) -> Cost:
    """The part that is taken; a repeated dimension is read once."""
    x = _first(call)
    out = output(call)
    if x is None:
        return moved(None, None, _NO_SHAPES)
    size = ints_param(call, "size")
    if out is None and size is not None and -1 not in size:
        out = TensorSpec(x.dtype, size)
    if out is None:
        return moved(None, None, "the trace does not record the size of the result")
    try:
        return moved([span(x, min(touched(x), numel(out)))], [out], "")
    except CannotKnow as why:
        return moved(None, None, str(why))


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
    "aten::blackman_window",
    "aten::bartlett_window",
    "aten::kaiser_window",
    "aten::fft_fftfreq",
    "aten::fft_rfftfreq",
    "aten::_dim_arange",
    "aten::_new_zeros_with_same_feature_meta",
    "aten::_fill_mem_eff_dropout_mask",
    "aten::_sobol_engine_initialize_state",
    family="fill",
    source="every element written once",
)
def fill(call: OpCall) -> Cost:
    """The result is written; nothing is read."""
    out = output(call)
    if out is None:
        size = ints_param(call, "size")
        first = _first(call)
        dtype = dtype_param(call, first.dtype if first is not None else "?")
        if first is not None and ("new_" not in call.name):
            out = TensorSpec(dtype, first.shape, first.minor_to_major, first.strides)
        elif size is not None:
            out = TensorSpec(dtype, size)
    steps = ints_param(call, "steps")
    if steps is not None and output(call) is None:
        out = TensorSpec(dtype_param(call, "f32"), steps)
    if out is None:
        return moved([], None, "the trace does not record the size of the result")
    return moved([], [out], "")


@op(
    "aten::cat",
    "aten::_cat",
    "aten::concat",
    "aten::concatenate",
    "aten::stack",
    "aten::_stack",
    "aten::row_stack",
    "aten::flatten_dense_tensors",
    "aten::hstack",
    "aten::vstack",
    "aten::_nested_tensor_from_tensor_list",
    "aten::combinations",
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
    """All parts are read and written once.

    ``element_size`` (bytes), which a kernel's name tells, stands in for element types that the trace
    lacks.
    """
    try:
        parts = next((one for one in lists(call) if one), None)
        if parts is None:  # a graph's node has its parts one by one, and an axis without sizes
            flat = [t for t in tensors(call) if t.shape] or tensors(call)
            parts = flat if len(flat) > 1 else tensor_list(call)
        count = sum(numel(t) for t in parts)
    except CannotKnow as why:
        whole = outputs(call)
        if whole and call.name in ("aten::cat", "aten::_cat", "aten::stack", "aten::_stack"):
            found = moved([*whole], [*whole], "")  # the parts are the whole, cut
            return replace(found, note="the parts are taken to be of the result's dtype")
        return moved(None, None, str(why))
    writes = outputs(call)
    if not writes:
        writes = [TensorSpec(parts[0].dtype, (count,))]
    if (
        "_chunk" in call.name
        or "_diag" in call.name
        or "mesh" in call.name
        or "prod" in call.name
        or "pad_" in call.name
    ):
        writes_known = outputs(call)
        if not writes_known:
            return moved([*parts], None, "the trace has no outputs")
    size = call.param("element_size")
    if isinstance(size, int) and all(t.dtype == "?" for t in parts):
        both = Span("u8", count * size)
        return moved([both], [both], "")
    return moved([*parts], [*writes], "")


@op("aten::_nested_sum_backward", "aten::_rowwise_prune", family="copy",
    source="moved: repeated over each part, or kept rows")  # fmt: skip
def as_recorded(call: OpCall) -> Cost:
    """How large the result is only the outputs tell: the parts' sizes and the mask are data."""
    found, made = distinct_tensors(call), outputs(call)
    if not found or not made:
        return moved([*found] or None, None, "how large the result is is data of the call")
    return moved([*(made[:1] if "prune" in call.name else found[:1])], [*made], "")


@op(
    "aten::split_copy",
    "aten::split_with_sizes_copy",
    "aten::unbind_copy",
    "fsdp::split_with_sizes_copy",
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


@op("aten::unfold_copy", family="copy", source="the whole read, every window written")
def unfold_copy(call: OpCall) -> Cost:
    """Windows of ``size`` every ``step`` along one dimension, overlapping where the step is less."""
    x = _first(call)
    if x is None:
        return moved(None, None, _NO_SHAPES)
    out = output(call)
    keys = (ints_param(call, key) for key in ("dimension", "size", "step"))
    dim, size, step = (value[0] if value else None for value in keys)
    if out is None and dim is not None and size is not None and step and x.shape:
        shape = list(sizes(x))
        at = axes((dim,), len(shape))[0]
        shape[at] = (shape[at] - size) // step + 1
        out = TensorSpec(x.dtype, (*shape, size))
    return moved([x], None if out is None else [out], _NO_OUTPUTS)


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
    "aten::reflection_pad3d_backward",
    "aten::replication_pad1d_backward",
    "aten::replication_pad2d_backward",
    "aten::replication_pad3d_backward",
    "aten::trace_backward",
    "aten::_gather_sparse_backward",
    "aten::masked_select_backward",
    "aten::masked_scatter_backward",
    "aten::_nested_select_backward",
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
    size = size or ints_param(call, "sizes")
    if out is None and "_scatter" in call.name and "backward" not in call.name:
        out = found[0]
    if out is None and "pad" in call.name and len(found) > 1:
        out = found[1]
    if out is None and size is not None:
        out = TensorSpec(found[0].dtype, size)
    # overlapping windows are added together: one addition an element that falls on another
    added = 0
    if call.name.endswith(("col2im", "unfold_backward")):
        added = numel(found[0])
    elif "pad" in call.name and out is not None:  # what the padding repeated is added again
        added = max(numel(found[0]) - numel(out), 0)
    reads = distinct_tensors(call)[: 1 if "pad" in call.name else 2]
    return cost(
        [*reads],
        None if out is None else [out],
        vector=added,
        dtype=found[0].dtype,
        reason="the trace does not record the size of the result",
    )
