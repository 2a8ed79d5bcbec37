"""FBGEMM's table-batched embeddings and sparse features, used by recommendation models.

A lookup adds the rows of each bag: one addition per index and column (with weights also a
multiplication). The backward does the same and updates the touched rows. Which table an index belongs
to is data: if the tables' widths differ, the mean width of a row is used, and the cost has a note.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from opscope.core.perf.registry import CannotKnow, Cost, op, variant, with_forward
from opscope.core.perf.shapes import (
    NO_OUTPUTS,
    NO_SHAPES,
    Part,
    Span,
    cost,
    distinct_tensors,
    need,
    numel,
    outputs,
    sizes,
    tensors,
)
from opscope.core.schema import INTEGERS, OpCall, TensorSpec

#: FLOPs per column of a touched row, by the optimizer that a lookup's backward applies.
_UPDATE: Final = {
    "sgd": 2,
    "approx_sgd": 2,
    "adagrad": 5,
    "rowwise_adagrad": 4,
    "approx_rowwise_adagrad": 4,
    "rowwise_weighted_adagrad": 5,
    "rowwise_adagrad_with_counter": 4,
    "adam": 12,
    "partial_rowwise_adam": 12,
    "lamb": 18,
    "partial_rowwise_lamb": 18,
    "lars_sgd": 2,
    "none": 0,
}


@dataclass(frozen=True, slots=True)
class Lookup:
    """The sizes of a lookup: indices, bags, tables, the mean row width and whether it is exact."""

    weights: TensorSpec
    indices: TensorSpec
    offsets: TensorSpec
    tables: int
    bags: int
    rows: int
    width: float
    exact: bool
    weighted: bool


def _number(dtype: str) -> bool:
    return dtype in INTEGERS and dtype != "u8"


def read_lookup(call: OpCall) -> Lookup:
    """Return the sizes of a table-batched lookup. Raises CannotKnow if its tensors are not as expected."""
    vectors = [t for t in tensors(call) if len(t.shape) == 1 and numel(t) > 0]
    floats = [t for t in vectors if not _number(t.dtype)]
    integers = [t for t in vectors if _number(t.dtype)]
    # placements and weight offsets have one element per table, D_offsets one more
    if len(integers) < 6 or not floats:
        raise CannotKnow("the trace does not record the lookup's tensors")
    tables = numel(integers[0])
    if numel(integers[1]) != tables or numel(integers[2]) != tables + 1:
        raise CannotKnow("the lookup's tensors do not have FBGEMM's known layout")
    indices, offsets = integers[4], integers[5]
    bags = (numel(offsets) - 1) // max(tables, 1)
    weights = floats[0]
    rest = floats[1:]
    weighted = bool(rest) and numel(rest[0]) == numel(indices) and len(rest) > 1
    momentum = rest[-1] if rest else None
    total_d = call.param("total_D")
    if tables == 1 and isinstance(total_d, int):
        return Lookup(
            weights, indices, offsets, 1, bags, numel(weights) // total_d, total_d, True, weighted
        )
    if momentum is None or not numel(momentum) or numel(weights) < numel(momentum):
        raise CannotKnow("the trace does not record the width of the tables' rows")
    rows = numel(momentum)  # row-wise states have one number per row
    width = numel(weights) / rows
    exact = tables == 1 and numel(weights) % rows == 0
    return Lookup(weights, indices, offsets, tables, bags, rows, width, exact, weighted)


def _note(lookup: Lookup) -> str:
    if lookup.exact:
        return ""
    return "the tables' mean row width is used; it is exact if all tables have the same width"


@op(
    *(f"fbgemm::split_embedding_codegen_lookup_{name}_function" for name in _UPDATE),
    *(f"fbgemm::split_embedding_codegen_lookup_{name}_function_pt2" for name in _UPDATE),
    "fbgemm::split_embedding_codegen_forward_unweighted_cuda",
    "fbgemm::split_embedding_codegen_forward_weighted_cuda",
    family="embedding",
    source="an addition (with weights a multiply-add) per index and column",
)
def lookup(call: OpCall) -> Cost:
    """Gather rows and add them within their bags."""
    read = read_lookup(call)
    picked = numel(read.indices)
    elements = round(picked * read.width)
    weights = Span("f32", picked if read.weighted else 0)
    total_d = call.param("total_D")
    wide = total_d if isinstance(total_d, int) else int(read.width) if read.exact else None
    recorded = outputs(call)
    writes: list[Part] | None = [*recorded] if recorded else None
    if writes is None and wide is not None:
        writes = [Span("f32", read.bags * wide)]
    touched = Span(read.weights.dtype, min(elements, numel(read.weights)))
    return cost(
        [touched, read.indices, read.offsets, weights],
        writes,
        vector=elements * (2 if read.weighted else 1),
        dtype=read.weights.dtype,
        reason="the trace does not record the width of the result",
        note=_note(read),
    )


_NODE = "torch::autograd::CppNode<SplitLookupFunction_{}_Op>"
_UPDATE_OF: Final = {_NODE.format(name): flops for name, flops in _UPDATE.items()}


@op(
    *_UPDATE_OF,
    family="embedding",
    source="each index's gradient row is added, touched rows are updated",
)
def lookup_backward(call: OpCall) -> Cost:
    """Raise CannotKnow: the gradient's shape does not give the number of indices."""
    raise CannotKnow("the number of indices is an input of the forward op, which is not linked")


@with_forward(*_UPDATE_OF)
def lookup_backward_of(call: OpCall, forward: OpCall) -> Cost:
    """Add each index's bag gradient to the index's row, and update the touched rows.

    It depends on the data which indices repeat. The count is an upper bound: as many updated rows as indices,
    at most all rows.
    """
    read = read_lookup(forward)
    grad = need(call, 0, "gradient")
    picked = numel(read.indices)
    elements = round(picked * read.width)
    update = _UPDATE_OF.get(call.name, 4)
    changed = round(min(picked, read.rows) * read.width)
    flops = elements * (2 if read.weighted else 1) + update * changed
    if read.weighted:  # the gradient of each index's weight: a dot product of two rows
        flops += 2 * elements
    rows = Span(read.weights.dtype, changed)
    return cost(
        [grad, read.indices, read.offsets, rows],
        [rows],
        vector=flops,
        dtype=read.weights.dtype,
        note=_note(read) or "every index is assumed to have a row of its own",
    )


_MOVES = (
    *(f"fbgemm::{name}" for name in (
        "permute_sparse_features", "permute_2D_sparse_data", "permute_1D_sparse_data",
        "permute_pooled_embs", "permute_pooled_embs_auto_grad", "permute_duplicate_pooled_embs",
        "recat_embedding_grad_output_mixed_D_batch", "recat_embedding_grad_output_mixed_D",
        "recat_embedding_grad_output", "block_bucketize_sparse_features", "bucketize_sparse_features",
        "new_unified_tensor", "jagged_to_padded_dense", "dense_to_jagged", "jagged_2d_to_dense",
        "pack_segments", "segment_sum_csr", "expand_into_jagged_permute", "invert_permute",
        "generate_vbe_metadata", "linearize_cache_indices", "lxu_cache_lookup",
        "keyed_jagged_index_select_dim1",
        "permute_multi_embedding", "regroup_keyed_tensor", "lxu_cache_populate",
    )),
    "fb::to_dense_representation",
    "fb::lengths_range_w_truncation_size",
    "fbgemm::lengths_range",
    "fb::offsets_range",
    "fbgemm::offsets_range",
    "torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&fbgemm_gpu::permute_pooled_embs_gpu> >",
    "torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<fbgemm_gpu::permute_pooled_embs_gpu> >",
)  # fmt: skip


@op(
    *_MOVES,
    family="copy",
    source="features are read and written once",
    variants={"permute": "*permute*", "recat": "*recat*", "node": "*CppNode*"},
)
def rearrange(call: OpCall) -> Cost:
    """Reorder indices and embeddings; zero model FLOPs."""
    operands = distinct_tensors(call)
    if not operands:
        return cost(None, None, reason=NO_SHAPES)
    recorded = outputs(call)
    if recorded is not None:
        return cost(operands, recorded)
    if variant(call, "permute") or variant(call, "recat") or variant(call, "node"):
        data = max(operands, key=numel)
        return cost(operands, [data])
    return cost(operands, None, reason=NO_OUTPUTS)


@op(
    "fbgemm::asynchronous_complete_cumsum",
    "fbgemm::asynchronous_inclusive_cumsum",
    "fbgemm::asynchronous_exclusive_cumsum",
    "fb::asynchronous_complete_cumsum",
    family="scan",
    source="an addition per element",
    variants={"complete": "*complete*"},
)
def cumsum(call: OpCall) -> Cost:
    """Running sums of the lengths."""
    x = need(call, 0, "lengths")
    more = 1 if variant(call, "complete") else 0
    shape = sizes(x)
    out = TensorSpec(x.dtype, (*shape[:-1], (shape[-1] if shape else 0) + more))
    return cost([x], [out], vector=numel(x), dtype=x.dtype)


@op("fbgemm::bounds_check_indices", family="index", source="two comparisons per index")
def bounds_check(call: OpCall) -> Cost:
    """Compare each index with both ends of its table."""
    operands = tensors(call)
    if len(operands) < 3:
        raise CannotKnow(NO_SHAPES)
    indices = max(operands[1:3], key=numel)
    return cost(distinct_tensors(call), [], vector=2 * numel(indices), dtype=indices.dtype)


@op("fbgemm::jagged_dense_elementwise_add", "fbgemm::jagged_dense_elementwise_mul",
    "fbgemm::jagged_dense_dense_elementwise_add_jagged_output", family="elementwise",
    source="one per element of the jagged values")  # fmt: skip
def jagged(call: OpCall) -> Cost:
    """One operation per stored value."""
    x = need(call, 0, "values")
    return cost([x, x], [x], vector=numel(x), dtype=x.dtype)


@op("fbgemm::batched_dense_vec_jagged_2d_mul", "fbgemm::jagged_jagged_bmm", family="gemm",
    source="2 per multiply-add over the jagged rows",
    variants={"bmm": "fbgemm::jagged_jagged_bmm"})  # fmt: skip
def jagged_product(call: OpCall) -> Cost:
    """Multiply every jagged row by a vector or matrix of the dense operand."""
    x, y = need(call, 0, "first operand"), need(call, 1, "second operand")
    rows, wide = (x, y) if len(x.shape) == 2 else (y, x)
    flops = 2 * numel(rows) * (sizes(wide)[-1] if variant(call, "bmm") else 1)
    return cost([x, y], outputs(call), matrix=flops, dtype=x.dtype, reason=NO_OUTPUTS)
