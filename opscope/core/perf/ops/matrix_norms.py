"""Norms of matrices: those by singular values need a decomposition, the others one pass."""

from __future__ import annotations

from typing import Final

from opscope.core.perf.ops.linalg import bidiagonal
from opscope.core.perf.ops.reduction import reduced_shape, reduction
from opscope.core.perf.registry import CannotKnow, Cost, op, word_of
from opscope.core.perf.shapes import as_ints, axes, cost, knows_params, need, output, product, sizes
from opscope.core.schema import OpCall, TensorSpec

#: The values of ``ord`` for which ``torch.linalg.matrix_norm`` takes singular values: their sum, the largest,
#: the smallest.
_SINGULAR: Final = ("nuc", 2, -2)


@op("aten::nuclear_norm", "aten::linalg_matrix_norm", "aten::linalg_norm", family="reduction",
    source="nuclear, 2 and −2: the singular values (LAPACK Working Note 41) and their sum, largest or"
    " smallest; others: opscope.core.perf.ops.reduction.FORMS")  # fmt: skip
def matrix_norm(call: OpCall) -> Cost:
    """Return 4·m·n² − 4·n³/3 FLOP per m × n matrix (m ≥ n) for singular values, else 2 per element."""
    x = need(call, 0, "operand")
    shape, word = sizes(x), word_of(call.name)
    dim = as_ints(call.param("dim"))
    nuclear = word == "nuclear_norm"
    if not nuclear and not knows_params(call) and len(shape) > 1:
        raise CannotKnow("the trace does not record which norm is computed")
    of_matrix = word != "linalg_norm" or len(dim or shape) == 2
    if not (nuclear or (of_matrix and call.param("ord") in _SINGULAR)):
        return reduction(call)
    places = axes(dim if dim is not None or nuclear else (-2, -1), len(shape))
    if len(places) != 2:
        raise CannotKnow(f"not a matrix: {list(shape)}")
    m, n = (shape[axis] for axis in places)
    matrices = product(shape) // max(m * n, 1)
    flops = matrices * bidiagonal(m, n)
    keep = bool(call.param("keepdim", False))
    out = output(call) or TensorSpec(x.dtype, reduced_shape(shape, places, keep))
    combined = matrices * (min(m, n) - 1) if min(m, n) else 0
    return cost([x], [out], matrix=flops, vector=combined, dtype=x.dtype)
