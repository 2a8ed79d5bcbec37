"""Cost models of HLO's fused regions and library calls, in the form that ``core.hlo`` writes."""

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


def _fuse(call: OpCall) -> Cost:
    unknown = call.param("unknown")
    if unknown is not None:
        raise CannotKnow(f"in the fused region: {unknown}")
    matrix, vector = as_ints(call.param("matrix_flops")), as_ints(call.param("vector_flops"))
    if not matrix or not vector:
        raise CannotKnow("the fused instructions are not recorded")
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
    """Return the parts read: each input once; of an input that is only sliced, only the slices."""
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


@op("hlo::fusion", family="fusion", source="sum of the fused instructions")
def fusion(call: OpCall) -> Cost:
    """The FLOPs of the fused instructions; inputs are read once, outputs written once."""
    return _fuse(call)


@op("hlo::fusion:dot", family="gemm", source="sum of the fused instructions")
def fused_dot(call: OpCall) -> Cost:
    """A fused region that contains a matrix product."""
    return _fuse(call)


@op("hlo::fusion:convolution", family="conv", source="sum of the fused instructions")
def fused_convolution(call: OpCall) -> Cost:
    """A fused region that contains a convolution."""
    return _fuse(call)


@op(
    "hlo::call:compiled",
    family="fusion",
    source="sum of the called instructions, loops times iterations",
)
def compiled_call(call: OpCall) -> Cost:
    """The FLOPs of all called instructions. The bytes are unknown: no call shows which part of a loop's
    state stays in place.
    """
    unknown = call.param("unknown")
    if unknown is not None:
        raise CannotKnow(f"in the called computation: {unknown}")
    matrix, vector = as_ints(call.param("matrix_flops")), as_ints(call.param("vector_flops"))
    if not matrix or not vector:
        raise CannotKnow("the called instructions are not recorded")
    return cost(
        None,
        None,
        matrix=matrix[0],
        vector=vector[0],
        dtype=str(call.param("compute", "?")),
        reason="the trace does not show what a loop reads and writes in each iteration",
    )


@op("hlo::custom-call:dot", family="gemm", source="2·result·contracted (XLA)")
def library_dot(call: OpCall) -> Cost:
    """A library's matrix product; the workspace, its second result, is not compulsory traffic."""
    results = outputs(call)
    first = None if not results else (results[0],)
    return dot(OpCall("hlo::dot", call.inputs[:2], first, call.params))


#: The positions of a library convolution's data, weights and forward result: an input's number, or -1 for
#: the call's own result.
_ROLES = {"forward": (0, 1, -1), "backward-input": (-1, 1, 0), "backward-filter": (0, -1, 1)}


@op(*(f"hlo::convolution:{name}" for name in _ROLES), family="conv",
    source="2·forward's result·(weights per output channel) (XLA)")  # fmt: skip
def library_convolution(call: OpCall) -> Cost:
    """The same FLOPs for the forward and for each gradient: all pair every result with its weights."""
    labels = LABELS.match(str(call.param("dim_labels", "")))
    own = output(call)
    if labels is None or own is None:
        raise CannotKnow("the dimension numbers or the result are not recorded")
    places = _ROLES[call.name.rsplit(":", 1)[1]]
    roles: list[TensorSpec] = [own if at < 0 else need(call, at, "operand") for at in places]
    weight, kernel = sizes(roles[1]), labels.group(1)
    if "o" not in kernel or len(kernel) != len(weight):
        raise CannotKnow("the dimension labels do not fit the shape of the weights")
    each = product(weight) // max(weight[kernel.index("o")], 1)
    reads = [need(call, 0, "operand"), need(call, 1, "operand")]
    return cost(reads, [own], matrix=2 * numel(roles[2]) * each, dtype=promote(reads))
