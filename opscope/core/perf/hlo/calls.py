"""Fused regions and library calls of HLO, as ``core.hlo`` writes them."""

from __future__ import annotations

from opscope.core.perf.registry import CannotKnow, Cost, op
from opscope.core.perf.shapes import (
    Part,
    as_ints,
    cost,
    distinct_tensors,
    need,
    numel,
    output,
    outputs,
    product,
    promote,
    sizes,
    span,
)
from opscope.core.schema import OpCall, TensorSpec, leaves

from .instructions import LABELS, dot


def _fused(call: OpCall) -> Cost:
    unknown = call.param("unknown")
    if unknown is not None:
        raise CannotKnow(f"of the fused region: {unknown}")
    matrix, vector = as_ints(call.param("matrix_flops")), as_ints(call.param("vector_flops"))
    if not matrix or not vector:
        raise CannotKnow("what is fused is not recorded")
    writes = outputs(call)
    return cost(
        _read(call),
        writes,
        matrix=matrix[0],
        vector=vector[0],
        dtype=str(call.param("compute", "?")),
        reason="the result is not recorded" if writes is None else "",
    )


def _read(call: OpCall) -> list[Part]:
    """What goes in, once each; of what the region only takes slices, no more than those."""
    touched = as_ints(call.param("touched"))
    if touched is None or len(touched) != len(call.inputs):
        return [*distinct_tensors(call)]
    reads: list[Part] = []
    for arg, count in zip(call.inputs, touched, strict=True):
        if count >= 0 and isinstance(arg, TensorSpec):
            reads.append(span(arg, min(count, numel(arg))))
        else:
            reads.extend(leaf for leaf in leaves((arg,)) if isinstance(leaf, TensorSpec))
    return reads


@op("hlo::fusion", family="fusion", source="the fused instructions' sum")
def fusion(call: OpCall) -> Cost:
    """The FLOPs of what is fused; what goes in and out once each."""
    return _fused(call)


@op("hlo::fusion:dot", family="gemm", source="the fused instructions' sum")
def fused_dot(call: OpCall) -> Cost:
    """A fused region with a matrix product in it."""
    return _fused(call)


@op("hlo::fusion:convolution", family="conv", source="the fused instructions' sum")
def fused_convolution(call: OpCall) -> Cost:
    """A fused region with a convolution in it."""
    return _fused(call)


@op("hlo::call:compiled", family="fusion", source="the called instructions' sum, loops by turns")
def compiled_call(call: OpCall) -> Cost:
    """The FLOPs of all in it. Its bytes are not known: what of a loop's state is kept, is in no call."""
    unknown = call.param("unknown")
    if unknown is not None:
        raise CannotKnow(f"of what is called: {unknown}")
    matrix, vector = as_ints(call.param("matrix_flops")), as_ints(call.param("vector_flops"))
    if not matrix or not vector:
        raise CannotKnow("what is called is not recorded")
    return cost(
        None,
        None,
        matrix=matrix[0],
        vector=vector[0],
        dtype=str(call.param("compute", "?")),
        reason="what a loop reads and writes anew in each turn is not told",
    )


@op("hlo::custom-call:dot", family="gemm", source="2·result·contracted (XLA)")
def library_dot(call: OpCall) -> Cost:
    """A library's matrix product; its workspace, a second result, is no traffic that must be."""
    kept = outputs(call)
    first = None if not kept else (kept[0],)
    return dot(OpCall("hlo::dot", call.inputs[:2], first, call.params))


#: Where a library's convolution has its data, its weights and the forward's result: an input's
#: number, or -1 for its own result.
_ROLES = {"forward": (0, 1, -1), "backward-input": (-1, 1, 0), "backward-filter": (0, -1, 1)}


@op(*(f"hlo::convolution:{name}" for name in _ROLES), family="conv",
    source="2·forward's result·(weights an output channel) (XLA)")  # fmt: skip
def library_convolution(call: OpCall) -> Cost:
    """The same FLOPs forward and for either gradient: each pairs every result with its weights."""
    labels = LABELS.match(str(call.param("dim_labels", "")))
    own = output(call)
    if labels is None or own is None:
        raise CannotKnow("the dimension numbers or the result are not recorded")
    place = _ROLES[call.name.rsplit(":", 1)[1]]
    roles: list[TensorSpec] = [own if at < 0 else need(call, at, "operand") for at in place]
    weight, kernel = sizes(roles[1]), labels.group(1)
    if "o" not in kernel or len(kernel) != len(weight):
        raise CannotKnow("the dimension labels do not fit the weights")
    each = product(weight) // max(weight[kernel.index("o")], 1)
    reads = [need(call, 0, "operand"), need(call, 1, "operand")]
    return cost(reads, [own], matrix=2 * numel(roles[2]) * each, dtype=promote(reads))
