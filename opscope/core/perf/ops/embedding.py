"""Embedding lookups and bags: rows that are gathered, not the table; sums count their additions."""

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


@op("aten::embedding", family="embedding", source="a gather: no arithmetic, the rows touched")
def embedding(call: OpCall) -> Cost:
    """Each index reads a row and writes it; no FLOPs."""
    weight, indices = need(call, 0, "table"), need(call, 1, "indices")
    rows, width = numel(indices), sizes(weight)[-1]
    out = output(call) or TensorSpec(weight.dtype, (*sizes(indices), width))
    return cost([span(weight, min(rows, sizes(weight)[0]) * width), indices], [out])


@op(
    "aten::embedding_dense_backward",
    "aten::embedding_backward",
    family="embedding",
    source="an addition an element of the gradient; the whole table is written",
)
def embedding_backward(call: OpCall) -> Cost:
    """Gradient rows are added into a dense table of zeros."""
    grad, indices = need(call, 0, "gradient"), need(call, 1, "indices")
    width = sizes(grad)[-1] if sizes(grad) else 1
    return _into_table(call, grad, indices, width, numel(grad))


def _into_table(
    call: OpCall, grad: TensorSpec, indices: TensorSpec, width: int, added: int
) -> Cost:
    """Rows of the gradient added into a whole new table of rows of ``width``."""
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
    source="an addition for each row but the first of a bag; a multiplication with weights",
    variants={"with_positions": "aten::_embedding_bag aten::_embedding_bag_forward_only"},
)
def embedding_bag(call: OpCall) -> Cost:
    """Rows are added within a bag (mean divides besides), weighted where there are weights."""
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
        raise CannotKnow("the number of bags is not recorded")
    weights = next((t for t in found[3:] if t.dtype in FLOATS and numel(t) == count), None)
    # empty bags add nothing, so that this counts each bag as having a row
    flops = max(count - bags, 0) * width
    if weights is not None:
        flops += count * width
    if call.param("mode", 0) in (1, "mean"):
        flops += bags * width
    writes = outputs(call) or [TensorSpec(weight.dtype, (bags, width))]
    if outputs(call) is None and variant(
        call, "with_positions"
    ):  # which bag, how many, the largest
        writes += [TensorSpec("i64", (n,)) for n in (count, bags, bags)]
    rows = span(weight, min(count, sizes(weight)[0]) * width)
    return cost([rows, *found[1:3], weights], writes, vector=flops, dtype=weight.dtype)


@op(
    "aten::_embedding_bag_dense_backward",
    "aten::_embedding_bag_backward",
    family="embedding",
    source="an addition an element of each index's row",
)
def embedding_bag_backward(call: OpCall) -> Cost:
    """Each index adds its bag's gradient to its row."""
    grad, indices = need(call, 0, "gradient"), need(call, 1, "indices")
    width = sizes(grad)[-1]
    return _into_table(call, grad, indices, width, numel(indices) * width)


@op("aten::_embedding_bag_per_sample_weights_backward", family="embedding",
    source="2 an element of each index's row")  # fmt: skip
def bag_weights_backward(call: OpCall) -> Cost:
    """The product of each index's row with its bag's gradient."""
    grad, weight, indices = (need(call, n, "operand") for n in range(3))
    rows, width = numel(indices), sizes(weight)[-1]
    touched = span(weight, min(rows, sizes(weight)[0]) * width)
    out = output(call) or TensorSpec(weight.dtype, (rows,))
    return cost([grad, touched, indices], [out], vector=2 * rows * width, dtype=weight.dtype)


@op("aten::embedding_renorm", family="embedding", source="3 an element: square, add, scale")
def embedding_renorm(call: OpCall) -> Cost:
    """The rows of the indices, each scaled where its norm is too large."""
    weight, indices = need(call, 0, "table"), need(call, 1, "indices")
    count = min(numel(indices), sizes(weight)[0]) * sizes(weight)[-1]
    rows = span(weight, count)
    return cost([rows, indices], [rows], vector=3 * count, dtype=weight.dtype)


@op("aten::embedding_sparse_backward", "aten::_embedding_bag_sparse_backward", family="copy",
    sparse=True, source="the gradient's rows and the indices, kept as they are",
    variants={"bag": "aten::_embedding_bag_sparse_backward"})  # fmt: skip
def sparse_gradient(call: OpCall) -> Cost:
    """A sparse gradient is the rows with their indices; a bag's rows are written for each index."""
    found = tensors(call)
    if len(found) < 2 or not variant(call, "bag"):
        return Cost()
    grad, indices = found[0], found[1]
    rows = span(grad, numel(indices) * (sizes(grad)[-1] if sizes(grad) else 1))
    return cost([grad, indices], [rows, indices])


@backward_of("aten::embedding")
def embedding_gradient(call: OpCall) -> tuple[Cost, Cost]:
    """A dense gradient of the table."""
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
    source="dequantise 2 an element gathered, an addition each into its bag",
    variants={"bag": "*bag*", "4bit": "*4bit*", "2bit": "*2bit*"},
)
def quantised_bag(call: OpCall) -> Cost:
    """Rows of a packed table: as wide as the result."""
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
