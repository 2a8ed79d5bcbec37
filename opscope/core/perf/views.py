"""Ops that move nothing: views, aliases, queries and allocations. Free, not unknown."""

from __future__ import annotations

from opscope.core.schema import OpCall

from .registry import Cost, op, words

VIEWS = words(
    """
    view view_as _unsafe_view reshape reshape_as _reshape_alias expand expand_as transpose t
    permute movedim moveaxis swapaxes swapdims numpy_T adjoint mT mH H T squeeze unsqueeze
    flatten unflatten ravel slice select narrow split split_with_sizes unsafe_split
    unsafe_split_with_sizes chunk unsafe_chunk unbind tensor_split hsplit vsplit dsplit
    as_strided alias detach lift_fresh diagonal unfold real imag view_as_real view_as_complex
    _conj conj resolve_conj resolve_neg _neg_view atleast_1d atleast_2d atleast_3d set set_data
    broadcast_to broadcast_tensors values indices _values _indices crow_indices col_indices
    _nested_view_from_buffer _nested_view_from_jagged _nested_get_values requires_grad
    unflatten_dense_tensors
    """
)
QUERIES = words(
    """
    size stride numel dim is_floating_point is_complex is_same_size is_contiguous sym_size
    sym_stride sym_numel sym_storage_offset storage_offset result_type can_cast _version
    output_nr is_leaf retain_grad _has_compatible_shallow_copy_type is_pinned data_ptr
    _assert_async _assert_scalar _assert_tensor_metadata _debug_has_internal_overlap
    record_stream _fw_primal _make_dual _unpack_dual _cudnn_init_dropout_state
    _use_cudnn_rnn_flatten_weight cudnn_is_acceptable _has_same_storage_numel _is_zerotensor
    sym_constrain_range sym_constrain_range_for_size
    """
)
ALLOCATIONS = words(
    """
    empty empty_like empty_strided new_empty new_empty_strided empty_permuted resize resize_as
    _resize_output empty_quantized
    """
)


@op(*(f"aten::{name}" for name in VIEWS), family="view", view=True, source="moves nothing")
def view(call: OpCall) -> Cost:
    """Another look at the same memory."""
    return Cost()


@op(*(f"aten::{name}" for name in QUERIES), family="query", view=True, source="moves nothing")
def query(call: OpCall) -> Cost:
    """A question to the host."""
    return Cost()


@op(
    *(f"aten::{name}" for name in ALLOCATIONS),
    family="allocation",
    view=True,
    source="writes nothing",
)
def allocation(call: OpCall) -> Cost:
    """Memory is reserved and not touched."""
    return Cost()
