"""Ops of sparse tensors: most costs are unknown, because the stored elements are data (``stored.py``).

A structured 2:4 product counts as the dense product that it replaces; ``masked_flops`` has the half that
its pattern makes unnecessary.
"""

from __future__ import annotations

from opscope.core.perf.groups import by_group
from opscope.core.perf.registry import CannotKnow, Cost, op, variant, words
from opscope.core.perf.shapes import (
    cost,
    distinct_tensors,
    int_param,
    need,
    numel,
    output,
    product,
    promote,
    sizes,
    tensors,
)
from opscope.core.perf.stored import STORED
from opscope.core.schema import OpCall, TensorSpec


@op(
    *words(
        """
        aten::_sparse_mm aten::_sparse_addmm aten::hspmm aten::sspaddmm aten::smm aten::spmm
        aten::sparse_sampled_addmm
        """
    ),
    family="gemm",
    source="2·stored·N with a dense matrix, if the text has the number of stored elements",
)
@op(
    *words(
        """
        aten::_sparse_sparse_matmul aten::_sparse_mm_reduce_impl aten::_sparse_mm_reduce_impl_backward
        aten::_spsolve
        """
    ),
    family="gemm",
    source="which elements are stored is data",
)
def sparse_product(call: OpCall) -> Cost:
    """Raise CannotKnow: without a layout in the text, the number of stored elements is not known."""
    need(call, 0, "operand")
    raise CannotKnow(STORED)


@op(
    *words(
        """
        aten::_sparse_sum aten::_sparse_sum_backward aten::_sparse_csr_sum aten::_sparse_csr_prod
        aten::_sparse_softmax aten::_sparse_softmax_backward_data aten::_sparse_log_softmax
        aten::_sparse_log_softmax_backward_data
        """
    ),
    family="reduction",
    source="an operation per stored element; their number is data",
)
def sparse_reduction(call: OpCall) -> Cost:
    """Raise CannotKnow: there is one operation per stored element, and their number is data."""
    raise CannotKnow(STORED)


@op(
    *words(
        """
        aten::to_sparse aten::_to_sparse aten::to_sparse_csr aten::_to_sparse_csr aten::to_sparse_csc
        aten::_to_sparse_csc aten::to_sparse_bsr aten::_to_sparse_bsr aten::to_sparse_bsc
        aten::_to_sparse_bsc aten::_to_dense aten::to_dense_backward aten::coalesce aten::_coalesce
        aten::sparse_mask aten::_sparse_mask_projection aten::copy_sparse_to_sparse
        aten::_sparse_broadcast_to aten::_sparse_broadcast_to_copy aten::_spdiags
        aten::_convert_indices_from_coo_to_csr aten::_convert_indices_from_csr_to_coo
        aten::_to_sparse_semi_structured aten::_cslt_compress aten::_sparse_semi_structured_tile
        aten::_sparse_semi_structured_apply aten::_sparse_semi_structured_apply_dense
        """
    ),
    family="copy",
    source="stored elements are moved, and their number is data",
)
def convert(call: OpCall) -> Cost:
    """No arithmetic; the bytes depend on the stored elements."""
    return cost(None, None, reason=STORED)


@op(
    *words(
        """
        aten::sparse_coo_tensor aten::_sparse_coo_tensor_unsafe aten::_sparse_coo_tensor_with_dims
        aten::_sparse_coo_tensor_with_dims_and_tensors aten::sparse_compressed_tensor
        aten::_sparse_compressed_tensor_unsafe aten::sparse_csr_tensor aten::_sparse_csr_tensor_unsafe
        aten::sparse_csc_tensor aten::_sparse_csc_tensor_unsafe aten::sparse_bsr_tensor
        aten::_sparse_bsr_tensor_unsafe aten::sparse_bsc_tensor aten::_sparse_bsc_tensor_unsafe
        aten::_sparse_compressed_tensor_with_dims aten::row_indices aten::ccol_indices
        aten::_coalesced aten::sparse_resize aten::sparse_resize_and_clear aten::resize_as_sparse
        """
    ),
    family="view",
    view=True,
    sparse=True,
    source="moves nothing",
)
def assemble(call: OpCall) -> Cost:
    """Join existing indices and values into one tensor."""
    return Cost()


def _structured(
    call: OpCall, kept: TensorSpec, dense: TensorSpec, out: TensorSpec | None, k: int
) -> Cost:
    if out is None:
        raise CannotKnow("the compressed operand hides its size, and the trace has no outputs")
    flops = 2 * numel(out) * k
    dtype = promote([kept, dense])
    return cost(distinct_tensors(call), [out], matrix=flops, masked=flops // 2, dtype=dtype)


@op(
    "aten::_cslt_sparse_mm",
    "aten::_sparse_semi_structured_linear",
    "aten::_sparse_semi_structured_mm",
    "aten::_sparse_semi_structured_addmm",
    family="gemm",
    source="2·M·N·K as the dense product; the 2:4 pattern masks half of it",
    variants={
        "linear": "aten::_sparse_semi_structured_linear",
        "cslt": "aten::_cslt_sparse_mm",
        "addmm": "aten::_sparse_semi_structured_addmm",
    },
)
def structured_product(call: OpCall) -> Cost:
    """K comes from the dense operand: its rows, or a linear layer's input features."""
    out = output(call)
    if variant(call, "linear"):
        x, w = need(call, 0, "input"), need(call, 1, "weight")
        shape = sizes(x)
        if not shape or len(sizes(w)) != 2:
            raise CannotKnow("not a linear layer")
        out = out or TensorSpec(x.dtype, (*shape[:-1], sizes(w)[0]))
        return _structured(call, w, x, out, shape[-1])
    at = {"_mm": (0, 2), "addmm": (1, 3)}["addmm" if variant(call, "addmm") else "_mm"]
    if variant(call, "cslt"):
        at = (0, 1)
    kept, dense = need(call, at[0], "compressed matrix"), need(call, at[1], "dense matrix")
    if len(sizes(dense)) != 2:
        raise CannotKnow("not matrices")
    if out is None and not variant(call, "cslt"):
        out = TensorSpec(dense.dtype, (sizes(kept)[0], sizes(dense)[1]))
    return _structured(call, kept, dense, out, sizes(dense)[0])


@op("aten::segment_reduce", family="reduction",
    source="an operation per element but the first of its segment; a mean also divides")  # fmt: skip
def segment_reduce(call: OpCall) -> Cost:
    """One operation per element except the first of its segment; a mean also divides."""
    x = need(call, 0, "data")
    out = output(call)
    if out is None:
        out = _segments(call, x)
    axis = int_param(call, "axis", 0)
    shape = sizes(x) or (1,)
    rows, segments = shape[axis], (sizes(out) or (1,))[axis]
    columns = product(shape[:axis]) * product(shape[axis + 1 :])
    mean = call.param("reduce") == "mean"
    each, note = by_group(rows, segments, "segments", mean=mean)
    return cost(distinct_tensors(call), [out], vector=each * columns, dtype=x.dtype, note=note)


def _segments(call: OpCall, x: TensorSpec) -> TensorSpec:
    """Return the result: its first axis has as many rows as there are lengths, or one row fewer than there
    are offsets."""
    lengths, offsets = call.arg(1), call.arg(3)
    if isinstance(lengths, TensorSpec):
        count = numel(lengths)
    elif isinstance(offsets, TensorSpec):
        count = numel(offsets) - 1
    else:
        raise CannotKnow("the trace does not record how many segments there are")
    return TensorSpec(x.dtype, (count, *sizes(x)[1:]))


@op("aten::_segment_reduce_backward", family="reduction", source="2 per element: scale and select")
def segment_reduce_backward(call: OpCall) -> Cost:
    """Each element gets its segment's gradient, scaled, or only if the forward selected it."""
    grad, data = need(call, 0, "gradient"), need(call, 2, "data")
    return cost(
        tensors(call), [output(call) or data], vector=2 * product(sizes(data)), dtype=grad.dtype
    )
