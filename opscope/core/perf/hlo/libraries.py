"""Cost models of HLO's custom calls, by the name of the library function that they call.

JAX's and XLA's linear algebra calls LAPACK (``lapack_spotrf_ffi``), cuSOLVER (``cusolver_getrf_ffi``,
``__cusolver$cholesky``), hipSOLVER and cuBLAS. The operation counts are those of ``linalg`` (LAPACK Working
Note 41); a tridiagonal system takes Thomas's elimination: 3 per row, and 5 per row and right-hand side.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from opscope.core.perf.ops.linalg import bidiagonal, lu, qr, svd
from opscope.core.perf.registry import CannotKnow, Cost, op
from opscope.core.perf.shapes import (
    cost,
    distinct_tensors,
    need,
    numel,
    outputs,
    product,
    sizes,
)
from opscope.core.schema import OpCall, TensorSpec

from . import transformer_engine  # noqa: F401  it registers models of its functions
from .instructions import topk
from .targets import TARGETS

_FUNCTION: Final = re.compile(
    r"(potrf|getrf|geqrf|geqp3|gqr|mqr|gesdd|gesvd|evd|evj|geev|gehrd|trd|gees|trsm|syrk|gtsv|cholesky"
    r"|triangularSolve|TopK|threefry2x32|lu_pivots_to_permutation)"
)
#: FLOPs for one m × n matrix; the second formula is for calls that do not compute the vectors.
_FACTORS: Final[dict[str, tuple[Callable[[int, int], int], Callable[[int, int], int] | None]]] = {
    "potrf": (lambda m, n: n**3 // 3, None),
    "cholesky": (lambda m, n: n**3 // 3, None),
    "getrf": (lu, None),
    "geqrf": (qr, None),
    "geqp3": (qr, None),
    "gesdd": (svd, bidiagonal),
    "gesvd": (svd, bidiagonal),
    "evd": (lambda m, n: 9 * n**3, None),
    "evj": (lambda m, n: 9 * n**3, None),
    "geev": (lambda m, n: 25 * n**3, lambda m, n: 10 * n**3),
    "gees": (lambda m, n: 25 * n**3, None),
    "gehrd": (lambda m, n: 10 * n**3 // 3, None),
    "trd": (lambda m, n: 4 * n**3 // 3, None),
}
_MOVES: Final = ("threefry2x32", "lu_pivots_to_permutation")


def _matrix(tensor: TensorSpec) -> tuple[int, int, int]:
    """Return (batch, m, n)."""
    shape = sizes(tensor)
    if len(shape) < 2:
        raise CannotKnow(f"not a matrix: {list(shape)}")
    return product(shape[:-2]), shape[-2], shape[-1]


@op("hlo::custom-call", family="linalg", source="LAPACK Working Note 41, by the called function")
def library(call: OpCall) -> Cost:
    """The cost by the name of the call's target; the cost of other library calls is not known."""
    name = str(call.param("target", ""))
    if name in TARGETS:
        return TARGETS[name](call)
    match = _FUNCTION.search(name)
    if match is None:
        raise CannotKnow(
            f"no cost model for this library call: {name or 'the trace does not record which'}"
        )
    function = match.group(1)
    if function == "TopK":
        return topk(call)
    writes = outputs(call)
    reads = distinct_tensors(call)
    reason = "" if writes is not None else "the results are not recorded"
    if function in _MOVES:  # integers
        return cost([*reads], None if writes is None else [*writes], reason=reason)
    a = need(call, 0, "matrix")
    flops = _flops(function, call, a, writes or [])
    return cost(
        [*reads],
        None if writes is None else [*writes],
        matrix=flops,
        dtype=a.dtype,
        reason=reason,
    )


def _flops(function: str, call: OpCall, a: TensorSpec, writes: list[TensorSpec]) -> int:
    if function == "gtsv":  # three diagonals, then the right-hand sides
        rows, sides = numel(a), numel(need(call, 3, "right-hand side"))
        return 3 * rows + 5 * sides
    batch, m, n = _matrix(a)
    if function in _FACTORS:
        factor, values = _FACTORS[function]
        vectors = sum(len(write.shape) == len(a.shape) for write in writes)
        # the overwritten input is a result too
        own = 1 if any(write == a for write in writes) else 0
        return batch * (values if values is not None and vectors <= own else factor)(m, n)
    if function in ("trsm", "triangularSolve"):
        return n * numel(need(call, 1, "right-hand side"))
    if function == "syrk":
        return batch * m * (m + 1) * n
    k = sizes(need(call, 1, "reflectors' factors"))[-1]
    if function == "gqr":
        return batch * (4 * m * n * k - 2 * (m + n) * k**2 + 4 * k**3 // 3)
    _, rows, columns = _matrix(need(call, 2, "matrix"))  # mqr: m × n by k reflectors of m
    left = m == rows
    return batch * (4 * rows * columns * k - 2 * (columns if left else rows) * k**2)
