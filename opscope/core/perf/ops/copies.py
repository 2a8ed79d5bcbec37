"""Copies, casts, fills, joins and layout changes: zero FLOPs, and the bytes that they move."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, isfinite

from opscope.core.perf.registry import CannotKnow, Cost, in_place, op, variant, word_of, words
from opscope.core.perf.shapes import (
    NO_OUTPUTS,
    NO_SHAPES,
    NO_SIZE,
    Span,
    axes,
    cost,
    distinct_tensors,
    dtype_param,
    int_param,
    ints_param,
    lists,
    need,
    numel,
    output,
    outputs,
    sizes,
    span,
    tensor_list,
    tensors,
    touched,
)
from opscope.core.schema import OpCall, SameAs, TensorSpec

#: Casts that have the result's dtype in their name.
_CASTS = {
    f"_cast_{word}": dtype
    for word, dtype in (
        ("Float", "f32"), ("Half", "f16"), ("Byte", "u8"), ("Char", "i8"), ("Double", "f64"),
        ("Int", "i32"), ("Long", "i64"), ("Short", "i16"),
    )
} | {"chalf": "c32"}  # fmt: skip


@op(
    "aten::copy_",
    "aten::copy",
    "aten::_copy_from",
    "aten::_copy_from_and_resize",
    family="copy",
    source="source read, destination written (a cast counts no FLOPs)",
    variants={"copy_from": "aten::_copy_from aten::_copy_from_and_resize"},
)
def copy(call: OpCall) -> Cost:
    """Read the second operand, write the first (``_copy_from``: the other way round)."""
    operands = tensors(call)
    if len(operands) < 2:
        raise CannotKnow(NO_SHAPES)
    if variant(call, "copy_from"):
        operands = [operands[1], operands[0], *operands[2:]]
    return cost([operands[1]], [operands[0]])


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
    variants={"lu_unpack": "aten::lu_unpack"},
)
def clone(call: OpCall) -> Cost:
    """Read and write every element once; a cast counts no FLOPs. If the result is the input: no cost."""
    x = need(call, 0, "input")
    if variant(call, "lu_unpack"):
        return cost(distinct_tensors(call), outputs(call) or _factors(call, x), reason=NO_OUTPUTS)
    if call.outputs and isinstance(call.outputs[0], SameAs) and not in_place(call.name):
        return Cost()
    dtype = dtype_param(call, _CASTS.get(word_of(call.name), x.dtype))
    out = output(call) or TensorSpec(dtype, x.shape)
    return cost([x], [out])


def _factors(call: OpCall, x: TensorSpec) -> list[TensorSpec] | None:
    """Return P, L and U of a factorised matrix, if both are unpacked."""
    shape = sizes(x)
    parts = (call.param("unpack_data"), call.param("unpack_pivots"))
    if len(shape) < 2 or parts != (True, True):
        return None
    *lead, rows, columns = shape
    small = min(rows, columns)
    pairs = ((rows, rows), (rows, small), (small, columns))
    return [TensorSpec(x.dtype, (*lead, *pair)) for pair in pairs]


@op(
    *(f"aten::{name}_copy" for name in ("select", "slice", "narrow", "as_strided", "expand")),
    family="copy",
    source="the part is read and written once",
    variants={"narrow": "aten::narrow_copy"},
)
def part_copy(call: OpCall) -> Cost:
    """Read and write the part that is taken; a repeated dimension is read once."""
    x = need(call, 0, "input")
    out = output(call)
    size = ints_param(call, "size")
    length = call.param("length")
    if out is None and variant(call, "narrow") and type(length) is int and length >= 0:
        shape = list(sizes(x))
        shape[axes((int_param(call, "dim"),), len(shape))[0]] = length
        out = TensorSpec(x.dtype, tuple(shape))
    elif out is None and size is not None:
        kept = (*(1,) * (len(size) - len(x.shape)), *sizes(x))
        shape = [old if new == -1 else new for old, new in zip(kept, size, strict=True)]
        out = TensorSpec(x.dtype, tuple(shape))
    if out is None:
        raise CannotKnow(NO_SIZE)
    return cost([span(x, min(touched(x), numel(out)))], [out])


@op(
    "aten::_local_scalar_dense",
    "aten::item",
    "aten::is_nonzero",
    "aten::_linalg_check_errors",
    family="copy",
    source="one element to the host",
    variants={"checks": "aten::_linalg_check_errors"},
)
def item(call: OpCall) -> Cost:
    """Copy one element to the host; a check reads all of LAPACK's results and copies a bool."""
    x = need(call, 0, "input")
    if variant(call, "checks"):
        return cost([x], [TensorSpec("bool", ())])
    element = TensorSpec(x.dtype, ())
    return cost([element], [element])


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
    variants={
        "new": "*new_*",
        "number": "aten::scalar_tensor",
        "range": "aten::arange",
        "square": "aten::eye",
        "triangle": "aten::tril_indices aten::triu_indices",
    },
)
def fill(call: OpCall) -> Cost:
    """Write the result; read nothing."""
    out = output(call)
    if out is None:
        size = ints_param(call, "size")
        first = next(iter(tensors(call)), None)
        dtype = dtype_param(call, first.dtype if first is not None else "?")
        if first is not None and (not variant(call, "new")):
            out = TensorSpec(dtype, first.shape, first.minor_to_major, first.strides)
        elif size is not None:
            out = TensorSpec(dtype, size)
    steps = ints_param(call, "steps")
    if steps is not None and output(call) is None:
        out = TensorSpec(dtype_param(call, "f32"), steps)
    if out is None and variant(call, "number"):
        out = TensorSpec(dtype_param(call, "?"), ())
    if out is None and variant(call, "range"):
        out = _range(call)
    if out is None and variant(call, "square"):
        rows, columns = call.param("n"), call.param("m", call.param("n"))
        if type(rows) is int and type(columns) is int:
            out = TensorSpec(dtype_param(call, "f32"), (rows, columns))
    if out is None and variant(call, "triangle"):
        out = _triangle(call)
    if out is None:
        return cost([], None, reason=NO_SIZE)
    return cost([], [out])


def _range(call: OpCall) -> TensorSpec | None:
    """Return the numbers from ``start`` up to but not including ``end``, in the type of the arguments."""
    bounds: list[int | float] = []
    for key, default in (("start", 0), ("end", None), ("step", 1)):
        value = call.param(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
            return None
        bounds.append(value)
    start, end, step = bounds
    if not step:
        return None
    integers = all(isinstance(value, int) for value in bounds)
    dtype = dtype_param(call, "i64" if integers else "f32")
    return TensorSpec(dtype, (max(ceil((end - start) / step), 0),))


def _triangle(call: OpCall) -> TensorSpec | None:
    """Return the row and the column of each element on or below a diagonal (``triu``: on or above)."""
    keys = ("row", "col", "offset")
    rows, columns, offset = (int_param(call, key, -1 if key != "offset" else 0) for key in keys)
    if rows < 0 or columns < 0:
        return None
    if call.name.startswith("aten::triu"):  # all elements except those below the previous diagonal
        below = _below(rows, columns, offset - 1)
        return TensorSpec(dtype_param(call, "i64"), (2, rows * columns - below))
    return TensorSpec(dtype_param(call, "i64"), (2, _below(rows, columns, offset)))


def _below(rows: int, columns: int, offset: int) -> int:
    """Return how many elements of a matrix have a column of at most their row and ``offset``."""
    first = min(max(-offset, 0), rows)  # rows before it have no elements
    full_row = min(max(columns - offset, first), rows)  # from it on they have all elements
    growing = full_row - first
    return (
        growing * (first + offset + 1) + growing * (growing - 1) // 2 + (rows - full_row) * columns
    )


#: ``larger``: the ops whose result has more elements than their parts together.
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
    variants={
        "larger": "aten::_chunk_cat aten::block_diag aten::meshgrid aten::cartesian_prod aten::pad_sequence"
    },
)
def cat(call: OpCall) -> Cost:
    """Read and write all parts once.

    ``element_size`` (bytes), taken from a kernel's name, replaces element types that the trace lacks.
    """
    writes = outputs(call)
    try:
        parts = next((parts_listed for parts_listed in lists(call) if parts_listed), None)
        # a prepared graph's node has the parts as separate inputs, and a scalar axis
        if parts is None:
            flat = [t for t in tensors(call) if t.shape] or tensors(call)
            parts = flat if len(flat) > 1 else tensor_list(call)
        count = sum(map(numel, parts))
    except CannotKnow:
        if writes and call.name in ("aten::cat", "aten::_cat", "aten::stack", "aten::_stack"):
            figures = cost(writes, writes)  # the parts together have the result's elements
            return replace(figures, note="the parts are assumed to have the result's dtype")
        raise
    if not writes and variant(call, "larger"):
        return cost(parts, None, reason=NO_OUTPUTS)
    size = call.param("element_size")
    if isinstance(size, int) and all(t.dtype == "?" for t in parts):
        both = Span("u8", count * size)
        return cost([both], [both])
    return cost(parts, writes or [TensorSpec(parts[0].dtype, (count,))])


@op("aten::_nested_sum_backward", "aten::_rowwise_prune", family="copy",
    source="rows repeated over each part, or rows kept",
    variants={"prune": "aten::_rowwise_prune"})  # fmt: skip
def as_recorded(call: OpCall) -> Cost:
    """The result's size is known only from recorded outputs: the parts' sizes and the mask are data."""
    operands, results = distinct_tensors(call), outputs(call)
    if not operands or not results:
        return cost(
            operands or None,
            None,
            reason="the size of the result depends on data that no trace records",
        )
    return cost(results[:1] if variant(call, "prune") else operands[:1], results)


@op(
    "aten::split_copy",
    "aten::split_with_sizes_copy",
    "aten::unbind_copy",
    "fsdp::split_with_sizes_copy",
    family="copy",
    source="the whole read, every part written",
)
def split_copy(call: OpCall) -> Cost:
    """Read and write all elements once."""
    x = need(call, 0, "input")
    return cost([x], outputs(call) or [TensorSpec(x.dtype, (touched(x),))])


@op(
    "_moe_C::moe_align_block_size",
    "sgl_kernel::moe_align_block_size",
    "_moe_C::moe_permute",
    "_moe_C::moe_unpermute",
    "_C_cache_ops::reshape_and_cache",
    "_C_cache_ops::reshape_and_cache_flash",
    "vllm::reshape_and_cache_flash",
    "_C_cache_ops::copy_blocks",
    "_C_cache_ops::swap_blocks",
    family="copy",
    source="tokens moved to their experts or pages",
    variants={"caches": "*cache*"},
)
def arrange(call: OpCall) -> Cost:
    """Read and write the rows that move; the rest of a cache is not touched."""
    operands = distinct_tensors(call)
    if not operands:
        return cost(None, None, reason=NO_SHAPES)
    rows = operands[:2] if variant(call, "caches") else operands[:1]
    return cost(rows, rows)
