"""Sorting and searching: the comparisons of a merge sort or a binary search."""

from __future__ import annotations

from math import ceil, log2

from opscope.core.perf.registry import CannotKnow, Cost, op, variant
from opscope.core.perf.shapes import (
    as_ints,
    axes,
    cost,
    distinct_tensors,
    int_param,
    lists,
    need,
    numel,
    output,
    outputs,
    product,
    sizes,
    tensors,
)
from opscope.core.schema import OpCall, TensorSpec


def _comparisons(count: int, rows: int) -> int:
    """Return rows · n · ⌈log2 n⌉, the comparisons of a merge sort."""
    return rows * count * ceil(log2(count)) if count > 1 else 0


def _row(call: OpCall, shape: tuple[int, ...]) -> tuple[int, int]:
    dim = as_ints(call.param("dim"))
    axis = axes(dim, len(shape))[0] if dim and shape else len(shape) - 1
    length = shape[axis] if shape else 1
    return length, product(shape) // max(length, 1)


@op(
    "aten::sort",
    "aten::argsort",
    "aten::msort",
    "aten::unique",
    "aten::_unique",
    "aten::_unique2",
    "aten::unique_dim",
    "aten::unique_consecutive",
    "aten::unique_dim_consecutive",
    family="sort",
    source="n·⌈log2 n⌉ comparisons per row; n for unique_consecutive",
    variants={
        "unique": "*unique*",
        "consecutive": "aten::unique_consecutive aten::unique_dim_consecutive",
        "argsort": "aten::argsort",
        "msort": "aten::msort",
    },
)
def sort(call: OpCall) -> Cost:
    """n·⌈log2 n⌉ comparisons per row."""
    x = need(call, 0, "input")
    shape = sizes(x)
    is_flat = variant(call, "unique")
    length, rows = (product(shape), 1) if is_flat else _row(call, shape)
    flops = product(shape) if variant(call, "consecutive") else _comparisons(length, rows)
    writes = outputs(call)
    if writes is None and is_flat:
        return cost(
            [x],
            None,
            vector=flops,
            dtype=x.dtype,
            reason="how many elements differ is data that no trace records",
        )
    places = TensorSpec("i64", x.shape)
    plain = (
        [x, places]
        if not variant(call, "argsort") and not variant(call, "msort")
        else ([places] if variant(call, "argsort") else [x])
    )
    return cost([x], writes or plain, vector=flops, dtype=x.dtype)


@op(
    "aten::topk",
    "aten::kthvalue",
    family="sort",
    source="one comparison per element, k·⌈log2 k⌉ per row",
    variants={"kthvalue": "aten::kthvalue"},
)
def topk(call: OpCall) -> Cost:
    """A selection pass over each row, then a sort of the k elements found."""
    x = need(call, 0, "input")
    shape = sizes(x)
    _, rows = _row(call, shape)
    recorded = output(call)
    # an autograd function's arguments have no names: k follows the input
    k = 1 if variant(call, "kthvalue") else int_param(call, "k", int_param(call, "arg1", -1))
    if k < 0:
        if recorded is None:
            raise CannotKnow("the trace does not record k")
        k = numel(recorded) // max(rows, 1)
    flops = product(shape) + _comparisons(k, rows)
    results = outputs(call) or [TensorSpec(x.dtype, (rows, k)), TensorSpec("i64", (rows, k))]
    return cost([x], results, vector=flops, dtype=x.dtype)


@op(
    "aten::quantile",
    "aten::nanquantile",
    family="sort",
    source="n·⌈log2 n⌉ comparisons per row, 3 per result to interpolate",
)
def quantile(call: OpCall) -> Cost:
    """Sort the rows, and interpolate each quantile between two of their elements."""
    x = need(call, 0, "input")
    shape = sizes(x)
    dim = as_ints(call.param("dim"))
    out = output(call)
    if dim is None and len(shape) > 1 and out is None and not call.params:
        raise CannotKnow("the trace does not record the dimension")
    length = product(shape) if dim is None else shape[axes(dim, len(shape))[0]] if shape else 1
    rows = product(shape) // max(length, 1)
    results = numel(out) if out is not None else rows * numel(need(call, 1, "quantiles"))
    flops = _comparisons(length, rows) + 3 * results
    writes = out or TensorSpec(x.dtype, (results,))
    return cost(distinct_tensors(call), [writes], vector=flops, dtype=x.dtype)


@op(
    "aten::searchsorted",
    "aten::bucketize",
    "aten::histc",
    "aten::bincount",
    "aten::histogram",
    family="sort",
    source="⌈log2 (bounds + 1)⌉ comparisons per element; a histogram 3, bincount 1",
    variants={
        "search": "aten::searchsorted",
        "bucket": "aten::bucketize",
        "bincount": "aten::bincount",
        "edges": "aten::histogram",
    },
)
def search(call: OpCall) -> Cost:
    """A binary search per value, or its evenly spaced bin (subtract, divide, add)."""
    first = need(call, 0, "input")
    operands = tensors(call)
    if variant(call, "search") or variant(call, "bucket"):
        second = need(call, 1, "boundaries")
        values, bounds = (second, first) if variant(call, "search") else (first, second)
        steps = ceil(log2(max(sizes(bounds)[-1], 1) + 1)) if sizes(bounds) else 0
        out = output(call) or TensorSpec("i32" if call.param("out_int32") else "i64", values.shape)
        return cost([values, bounds], [out], vector=steps * numel(values), dtype=values.dtype)
    each = 1 if variant(call, "bincount") else 3
    writes, bins = outputs(call), call.param("bins")
    if writes is None and type(bins) is int and bins >= 0:
        edges = [TensorSpec(first.dtype, (bins + 1,))] if variant(call, "edges") else []
        writes = [TensorSpec(first.dtype, (bins,)), *edges]
    elif writes is None and variant(call, "edges") and len(operands) > 1:
        writes = [TensorSpec(first.dtype, (max(numel(operands[1]) - 1, 0),)), operands[1]]
    return cost(
        operands,
        writes,
        vector=each * numel(first),
        dtype=first.dtype,
        reason="the trace does not record how many bins there are",
    )


@op(
    "aten::_histogramdd_bin_edges",
    "aten::_histogramdd_from_bin_cts",
    "aten::_histogramdd_from_bin_tensors",
    "aten::histogramdd",
    family="sort",
    source="per coordinate 3, or ⌈log2 (bounds + 1)⌉ comparisons, 1 per point; bin edges 2 comparisons",
    variants={"bin_edges": "aten::_histogramdd_bin_edges"},
)
def histogram(call: OpCall) -> Cost:
    """Find each coordinate's bin, with one addition per point."""
    x = need(call, 0, "input")
    shape = sizes(x)
    points = product(shape[:-1])
    edges = next((tensor_list for tensor_list in lists(call) if tensor_list), None)
    if variant(call, "bin_edges"):
        flops = 2 * product(shape)
    elif edges:
        flops = points * (1 + sum(ceil(log2(max(numel(t), 1) + 1)) for t in edges))
    else:
        flops = 3 * product(shape) + points
    return cost(
        distinct_tensors(call),
        outputs(call),
        vector=flops,
        dtype=x.dtype,
        reason="the trace does not record how many bins there are",
    )


@op(
    "aten::isin",
    family="sort",
    source="a sort of the second operand, ⌈log2 (m + 1)⌉ comparisons per element",
)
def isin(call: OpCall) -> Cost:
    """Look up each element in the sorted second operand."""
    operands = tensors(call)
    x = need(call, 0, "elements")
    count = numel(operands[1]) if len(operands) > 1 else 1
    flops = _comparisons(count, 1) + numel(x) * ceil(log2(count + 1))
    out = output(call) or TensorSpec("bool", x.shape)
    return cost(distinct_tensors(call), [out], vector=flops, dtype=x.dtype)
