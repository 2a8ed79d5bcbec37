"""Ops that move nothing: views, aliases, queries and allocations. Their cost is zero, not unknown."""

from __future__ import annotations

from opscope.core.perf.registry import Cost, op, words
from opscope.core.schema import OpCall

VIEWS = words(
    """
    view view_as _unsafe_view reshape reshape_as _reshape_alias expand expand_as transpose t
    permute movedim moveaxis swapaxes swapdims numpy_T adjoint mT mH H T squeeze unsqueeze
    flatten unflatten ravel slice select narrow split split_with_sizes unsafe_split
    unsafe_split_with_sizes chunk unsafe_chunk unbind tensor_split hsplit vsplit dsplit
    as_strided diagonal unfold real imag view_as_real view_as_complex
    _conj conj resolve_conj resolve_neg _neg_view atleast_1d atleast_2d atleast_3d
    broadcast_to broadcast_tensors
    _nested_view_from_buffer _nested_view_from_jagged _nested_get_values
    _test_autograd_multiple_dispatch_view _add_batch_dim _remove_batch_dim _propagate_xla_data
    unflatten_dense_tensors positive linalg_diagonal matrix_H slice_inverse
    _reshape_from_tensor
    _nested_get_offsets _nested_get_lengths _nested_get_jagged_dummy
    align_as align_tensors align_to refine_names rename rename_
    """
)
#: Ops that move nothing of a sparse tensor either; its transpose, for example, is a new tensor.
ALIASES = words(
    """
    values indices _values _indices crow_indices col_indices alias detach lift lift_fresh set
    set_data data requires_grad
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
    sym_constrain_range sym_constrain_range_for_size _functional_assert_async
    _functional_assert_scalar _functional_sym_constrain_range sym_is_contiguous get_device is_conj
    is_neg is_inference is_signed is_set_to is_coalesced is_distributed retains_grad promote_types
    dense_dim sparse_dim _dimI _dimV _nnz q_scale q_zero_point q_per_channel_axis
    q_per_channel_scales q_per_channel_zero_points qscheme _make_dep_token
    _functional_sym_constrain_range_for_size is_vulkan_available _nnpack_available
    _use_cudnn_ctc_loss _use_miopen_ctc_loss _nested_tensor_size _nested_tensor_strides
    _nested_tensor_storage_offsets _nested_get_ragged_idx _nested_get_min_seqlen
    _nested_get_max_seqlen _shape_as_tensor _validate_compressed_sparse_indices
    _validate_sparse_coo_tensor_args _validate_sparse_csr_tensor_args
    _validate_sparse_compressed_tensor_args _validate_sparse_csc_tensor_args
    _validate_sparse_bsr_tensor_args _validate_sparse_bsc_tensor_args
    _nested_compute_contiguous_strides_offsets _print _cufft_get_plan_cache_size
    _cufft_get_plan_cache_max_size _cufft_set_plan_cache_max_size _cufft_clear_plan_cache
    nelement ndimension element_size
    """
)
ALLOCATIONS = words(
    """
    empty empty_like empty_strided new_empty new_empty_strided empty_permuted resize resize_as
    _resize_output from_file empty_quantized _empty_affine_quantized _empty_per_channel_affine_quantized
    """
)


@op(*(f"aten::{name}" for name in VIEWS), family="view", view=True, source="moves nothing")
def view(call: OpCall) -> Cost:
    """A view of the same memory."""
    return Cost()


@op(
    *(f"aten::{name}" for name in ALIASES),
    family="view",
    view=True,
    sparse=True,
    source="moves nothing",
)
def alias(call: OpCall) -> Cost:
    """Another name for the same memory or for a part of it."""
    return Cost()


@op(
    *(f"aten::{name}" for name in QUERIES),
    family="query",
    view=True,
    sparse=True,
    source="moves nothing",
)
def query(call: OpCall) -> Cost:
    """The host asks for a property of the tensor; no data is read."""
    return Cost()


@op(
    *(f"aten::{name}" for name in ALLOCATIONS),
    family="allocation",
    view=True,
    sparse=True,
    source="writes nothing",
)
def allocation(call: OpCall) -> Cost:
    """Reserve memory without touching it."""
    return Cost()


@op(
    *words(
        """
        profiler::_record_function_enter profiler::_record_function_enter_new
        profiler::_record_function_exit inductor::_alloc_from_pool inductor::_reinterpret_tensor
        inductor::resize_storage_bytes_ debug_mode_ops::annotate
        symm_mem::_rendezvous symm_mem::nccl_wait_for_signal symm_mem::nccl_wait_signal
        symm_mem::nvshmem_wait_for_signal symm_mem::stream_write_value32_
        inductor_prims::inductor_reserve_rng_state mkldnn::_get_mkldnn_serialized_md
        mkldnn::_nbytes mkldnn::data_ptr mkldnn::_is_mkldnn_bf16_supported
        mkldnn::_is_mkldnn_fp16_supported mkldnn::_is_mkldnn_acl_supported
        quantized::conv2d_stride quantized::conv2d_padding quantized::conv2d_output_padding
        quantized::conv2d_dilation quantized::conv2d_groups quantized::conv2d_transpose
        quantized::conv3d_stride quantized::conv3d_padding quantized::conv3d_output_padding
        quantized::conv3d_dilation quantized::conv3d_groups quantized::conv3d_transpose
        quantized::conv_transpose2d_stride quantized::conv_transpose2d_padding
        quantized::conv_transpose2d_output_padding quantized::conv_transpose2d_dilation
        quantized::conv_transpose2d_groups quantized::conv_transpose2d_transpose
        quantized::conv_transpose3d_stride quantized::conv_transpose3d_padding
        quantized::conv_transpose3d_output_padding quantized::conv_transpose3d_dilation
        quantized::conv_transpose3d_groups quantized::conv_transpose3d_transpose
        quantized::make_quantized_cell_params quantized::make_quantized_cell_params_dynamic
        quantized::make_quantized_cell_params_fp16 export::access_subclass_inner_tensor
        debugprims::load_tensor static_runtime::dict_unpack static_runtime::VarTupleUnpack
        static_runtime::create_owned_ref static_runtime::select_tensor PythonSubclass PythonDispatchMode
        """
    ),
    family="query",
    view=True,
    source="moves nothing",
)
def bookkeeping(call: OpCall) -> Cost:
    """A mark or a query on the host."""
    return Cost()
