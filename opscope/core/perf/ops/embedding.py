"""Embedding lookups and bags: bytes of the gathered rows, not of the table; FLOPs of the sums."""

from __future__ import annotations

from collections.abc import Sequence

from opscope.core.perf.groups import by_group
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
from opscope.core.schema import FLOATS, INTEGERS, OpCall, TensorSpec


def _table_and_indices(call: OpCall) -> tuple[TensorSpec, TensorSpec]:
    """The first two operands: ATen puts the table first, torch.nn.functional the indices."""
    first, second = need(call, 0, "table"), need(call, 1, "indices")
    return (
        (second, first) if first.dtype in INTEGERS and second.dtype in FLOATS else (first, second)
    )


def _mode(call: OpCall) -> str:
    """How a bag's rows are brought together; absent, torch.nn.functional's mean or ATen's sum."""
    mode = call.param("mode")
    if mode is None:
        return "mean" if "functional." in call.name or call.name.startswith("F.") else "sum"
    mode_name = {0: "sum", 1: "mean", 2: "max"}.get(mode, mode) if isinstance(mode, int) else mode
    if mode_name not in ("sum", "mean", "max"):
        raise CannotKnow(f"the mode of the bags is not known: {mode}")
    return str(mode_name)


@op(
    "aten::embedding",
    family="embedding",
    source="a gather: no arithmetic, bytes of the touched rows",
)
def embedding(call: OpCall) -> Cost:
    """Read and write a row per index; no FLOPs."""
    weight, indices = _table_and_indices(call)
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
    return _into_table(call, grad, [grad, indices], width, numel(grad))


def _into_table(
    call: OpCall, grad: TensorSpec, reads: Sequence[Part], width: int, added: int
) -> Cost:
    """The cost of adding the gradient's rows into a new table with rows of ``width`` elements."""
    out = output(call)
    if out is None and call.param("num_weights") is not None:
        out = TensorSpec(grad.dtype, (int_param(call, "num_weights"), width))
    return cost(
        reads,
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
    source="per element: an operation for each row of a bag but the first, a mean's division, a "
    "multiplication with weights; which bags are empty is data: the least that the sizes allow",
    variants={"with_positions": "aten::_embedding_bag aten::_embedding_bag_forward_only"},
)
def embedding_bag(call: OpCall) -> Cost:
    """Add the rows of each bag (or compare them; a mean also divides), weighted if there are weights."""
    weight, indices = _table_and_indices(call)
    more = tensors(call)[2:]
    width, count = sizes(weight)[-1], numel(indices)
    weights = next((t for t in more if t.dtype in FLOATS and numel(t) == count), None)
    offsets = next((t for t in more if t is not weights and len(t.shape) == 1), None)
    out = output(call)
    square = offsets is None and len(sizes(indices)) == 2  # every bag has as many indices
    if out is not None:
        bags = sizes(out)[0]
    elif square:
        bags = sizes(indices)[0]
    elif offsets is not None:
        bags = sizes(offsets)[0] - (call.param("include_last_offset") is True)
    else:
        raise CannotKnow("the trace does not record the number of bags")
    padding = call.param("padding_idx")
    padded = isinstance(padding, int) and not isinstance(padding, bool) and padding >= 0
    mode = _mode(call)
    rows, note = by_group(count, bags, "bags", mean=mode == "mean", even=square, unused=padded)
    flops = rows * width
    if weights is not None:
        flops += count * width
    writes = outputs(call) or [TensorSpec(weight.dtype, (bags, width))]
    # offset2bag, bag_size, max_indices
    if outputs(call) is None and variant(call, "with_positions"):
        largest = bags * width if mode == "max" else bags
        writes += [TensorSpec("i64", (n,)) for n in (count, bags, largest)]
    touched = span(weight, min(count, sizes(weight)[0]) * width)
    return cost(
        [touched, indices, offsets, weights], writes, vector=flops, dtype=weight.dtype, note=note
    )


@op(
    "aten::_embedding_bag_dense_backward",
    "aten::_embedding_bag_backward",
    family="embedding",
    source="an addition per element of each index's row, a multiplication with weights; a mean divides each "
    "bag's gradient; a maximum adds each element of the gradient once",
    variants={"dense": "aten::_embedding_bag_dense_backward"},
)
def embedding_bag_backward(call: OpCall) -> Cost:
    """Add each index's bag gradient to the index's row; a maximum's gradient to the row that it came from."""
    grad, indices = need(call, 0, "gradient"), need(call, 1, "indices")
    width = sizes(grad)[-1]
    operands = tensors(call)[2 if variant(call, "dense") else 3 :]  # after the offsets
    bag_of, bag_sizes, largest, *more = [*operands, None, None, None][: max(len(operands), 3)]
    mode = _mode(call)
    if mode == "max":
        reads, flops = [grad, largest], numel(grad)
    else:
        weights = next((t for t in more if t is not None and t.dtype in FLOATS), None)
        mean = mode == "mean"
        each = 1 if weights is None else 2
        reads = [grad, indices, bag_of, weights, bag_sizes if mean else None]
        flops = each * numel(indices) * width + (numel(grad) if mean else 0)
    return _into_table(call, grad, reads, width, flops)


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
    operands = tensors(call)
    if len(operands) < 2 or not variant(call, "bag"):
        return Cost()
    grad, indices = operands[0], operands[1]
    rows = span(grad, numel(indices) * (sizes(grad)[-1] if sizes(grad) else 1))
    return cost([grad, indices], [rows, indices])


@backward_of("aten::embedding")
def embedding_gradient(call: OpCall) -> tuple[Cost, Cost]:
    """The dense gradient of the table."""
    weight, indices = _table_and_indices(call)
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
    source="dequantise 2 per gathered element, and an addition for each row of a bag but the first",
    variants={"bag": "*bag*", "4bit": "*4bit*", "2bit": "*2bit*"},
)
def quantised_bag(call: OpCall) -> Cost:
    """Gather rows of a packed table, as wide as the result."""
    out = output(call)
    indices = next((t for t in tensors(call) if t.dtype in ("i32", "i64")), None)
    if out is None or indices is None:
        raise CannotKnow("the packed table has no shape, and the trace has no outputs")
    width = sizes(out)[-1] if sizes(out) else 1
    gathered = numel(indices) * width
    rows, note = 0, ""
    if variant(call, "bag"):
        bags = numel(out) // max(width, 1)
        rows, note = by_group(numel(indices), bags, "bags")
    bits = "u4" if variant(call, "4bit") else "u8"
    reads: list[Part] = [Span(bits, gathered), indices]
    if variant(call, "2bit"):
        reads = [Span("u8", gathered // 4), indices]
    return cost(reads, [out], vector=2 * gathered + rows * width, dtype=out.dtype, note=note)
