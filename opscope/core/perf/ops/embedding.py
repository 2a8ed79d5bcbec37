"""Embedding lookups and bags: bytes of the gathered rows, not of the table; FLOPs of the sums."""

from __future__ import annotations

from opscope.core.perf.registry import CannotKnow, Cost, backward_of, op, variant, words
from opscope.core.perf.shapes import (
    Part,
    Span,
    cost,
    int_param,
    need,
    numel,
    output,
    outputs,
    product,
    sizes,
    span,
    tensors,
)
from opscope.core.schema import FLOATS, OpCall, TensorSpec


@op(
    "aten::embedding",
    family="embedding",
    source="a gather: no arithmetic, bytes of the touched rows",
)
def embedding(call: OpCall) -> Cost:
    """Read and write a row per index; no FLOPs."""
    weight, indices = need(call, 0, "table"), need(call, 1, "indices")
    rows, width = numel(indices), sizes(weight)[-1]
    out = output(call) or TensorSpec(weight.dtype, (*sizes(indices), width))
    return cost([span(weight, min(rows, sizes(weight)[0]) * width), indices], [out])


@op(
    "aten::embedding_dense_backward",
    "aten::embedding_backward",
    family="embedding",
    source="an addition per element of the gradient; the whole table is written",
)
def embedding_backward(call: OpCall) -> Cost:
    """Add the gradient's rows into a dense table of zeros."""
    grad, indices = need(call, 0, "gradient"), need(call, 1, "indices")
    width = sizes(grad)[-1] if sizes(grad) else 1
    return _into_table(call, grad, indices, width, numel(grad))


def _into_table(
    call: OpCall, grad: TensorSpec, indices: TensorSpec, width: int, added: int
) -> Cost:
    """The cost of adding the gradient's rows into a new table with rows of ``width`` elements."""
    out = output(call)
    if out is None and call.param("num_weights") is not None:
        out = TensorSpec(grad.dtype, (int_param(call, "num_weights"), width))
    return cost(
        [grad, indices],
        None if out is None else [out],
        vector=added,
        dtype=grad.dtype,
        reason="the trace does not record how many rows the table has",
    )


@op(
    "aten::embedding_bag",
    "aten::_embedding_bag",
    "aten::_embedding_bag_forward_only",
    family="embedding",
    source="per element: an addition for each row of a bag but the first, a multiplication with weights",
    variants={"with_positions": "aten::_embedding_bag aten::_embedding_bag_forward_only"},
)
def embedding_bag(call: OpCall) -> Cost:
    """Add the rows of each bag (mean also divides), weighted if there are weights."""
    weight, indices = need(call, 0, "table"), need(call, 1, "indices")
    found = tensors(call)
    width, count = sizes(weight)[-1], numel(indices)
    out = output(call)
    if out is not None:
        bags = sizes(out)[0]
    elif len(found) > 2:
        offsets = sizes(found[2])[0]
        bags = offsets - 1 if call.param("include_last_offset") is True else offsets
    elif len(sizes(indices)) == 2:
        bags = sizes(indices)[0]
    else:
        raise CannotKnow("the trace does not record the number of bags")
    weights = next((t for t in found[3:] if t.dtype in FLOATS and numel(t) == count), None)
    # an empty bag adds nothing, so this formula takes every bag to have a row
    flops = max(count - bags, 0) * width
    if weights is not None:
        flops += count * width
    if call.param("mode", 0) in (1, "mean"):
        flops += bags * width
    writes = outputs(call) or [TensorSpec(weight.dtype, (bags, width))]
    if outputs(call) is None and variant(
        call, "with_positions"
    ):  # offset2bag, bag_size, max_indices
        writes += [TensorSpec("i64", (n,)) for n in (count, bags, bags)]
    rows = span(weight, min(count, sizes(weight)[0]) * width)
    return cost([rows, *found[1:3], weights], writes, vector=flops, dtype=weight.dtype)


@op(
    "aten::_embedding_bag_dense_backward",
    "aten::_embedding_bag_backward",
    family="embedding",
    source="an addition per element of each index's row",
)
def embedding_bag_backward(call: OpCall) -> Cost:
    """Add each index's bag gradient to the index's row."""
    grad, indices = need(call, 0, "gradient"), need(call, 1, "indices")
    width = sizes(grad)[-1]
    return _into_table(call, grad, indices, width, numel(indices) * width)


@op("aten::_embedding_bag_per_sample_weights_backward", family="embedding",
    source="2 per element of each index's row")  # fmt: skip
def bag_weights_backward(call: OpCall) -> Cost:
    """The dot product of each index's row with its bag's gradient."""
    grad, weight, indices = (need(call, n, "operand") for n in range(3))
    rows, width = numel(indices), sizes(weight)[-1]
    touched = span(weight, min(rows, sizes(weight)[0]) * width)
    out = output(call) or TensorSpec(weight.dtype, (rows,))
    return cost([grad, touched, indices], [out], vector=2 * rows * width, dtype=weight.dtype)


@op("aten::embedding_renorm", family="embedding", source="3 per element: square, add, scale")
def embedding_renorm(call: OpCall) -> Cost:
    """Scale each index's row if its norm is too large."""
    weight, indices = need(call, 0, "table"), need(call, 1, "indices")
    count = min(numel(indices), sizes(weight)[0]) * sizes(weight)[-1]
    rows = span(weight, count)
    return cost([rows, indices], [rows], vector=3 * count, dtype=weight.dtype)


@op("aten::embedding_sparse_backward", "aten::_embedding_bag_sparse_backward", family="copy",
    sparse=True, source="the gradient's rows and the indices are kept as they are",
    variants={"bag": "aten::_embedding_bag_sparse_backward"})  # fmt: skip
def sparse_gradient(call: OpCall) -> Cost:
    """A sparse gradient is rows with their indices; of a bag, a row is written per index."""
    found = tensors(call)
    if len(found) < 2 or not variant(call, "bag"):
        return Cost()
    grad, indices = found[0], found[1]
    rows = span(grad, numel(indices) * (sizes(grad)[-1] if sizes(grad) else 1))
    return cost([grad, indices], [rows, indices])


@backward_of("aten::embedding")
def embedding_gradient(call: OpCall) -> tuple[Cost, Cost]:
    """The dense gradient of the table."""
    weight, indices = need(call, 0, "table"), need(call, 1, "indices")
    elements = product((numel(indices), sizes(weight)[-1]))
    grad = span(weight, elements)
    return Cost(), cost([grad, indices], [weight], vector=elements, dtype=weight.dtype)


@op(
    *words(
        """
        quantized::embedding_byte quantized::embedding_4bit quantized::embedding_bag_byte
        quantized::embedding_bag_4bit quantized::embedding_bag_byte_rowwise_offsets
        quantized::embedding_bag_4bit_rowwise_offsets quantized::embedding_bag_2bit_rowwise_offsets
        """
    ),
    family="embedding",
    source="dequantise 2 per gathered element, and an addition into its bag",
    variants={"bag": "*bag*", "4bit": "*4bit*", "2bit": "*2bit*"},
)
def quantised_bag(call: OpCall) -> Cost:
    """Gather rows of a packed table, as wide as the result."""
    out = output(call)
    indices = next((t for t in tensors(call) if t.dtype in ("i32", "i64")), None)
    if out is None or indices is None:
        raise CannotKnow("the packed table has no shape, and the trace has no outputs")
    gathered = numel(indices) * (sizes(out)[-1] if sizes(out) else 1)
    added = max(gathered - numel(out), 0) if variant(call, "bag") else 0
    bits = "u4" if variant(call, "4bit") else "u8"
    reads: list[Part] = [Span(bits, gathered), indices]
    if variant(call, "2bit"):
        reads = [Span("u8", gathered // 4), indices]
    return cost(reads, [out], vector=2 * gathered + added, dtype=out.dtype)
