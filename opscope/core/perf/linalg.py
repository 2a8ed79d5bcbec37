"""Dense linear algebra with LAPACK's own operation counts, of real matrices.

LAPACK Working Note 41, appendix C (E. Anderson, J. Dongarra, S. Ostrouchov): leading terms. Complex
arithmetic costs four times as many real operations. Iterative ones (eigenvalues, SVD) are the usual
averages (G. Golub, C. Van Loan, "Matrix Computations", 4th ed.).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from opscope.core.schema import OpCall, TensorSpec

from .registry import CannotKnow, Cost, op
from .shapes import cost, distinct_tensors, need, outputs, product, sizes, tensors

#: FLOPs of a factorisation of an m × n matrix.
FACTORS: Final[dict[str, Callable[[int, int], int]]] = {
    "cholesky": lambda m, n: n**3 // 3,
    "linalg_cholesky": lambda m, n: n**3 // 3,
    "linalg_cholesky_ex": lambda m, n: n**3 // 3,
    "cholesky_inverse": lambda m, n: 2 * n**3 // 3,
    "linalg_lu_factor": lambda m, n: lu(m, n),
    "linalg_lu_factor_ex": lambda m, n: lu(m, n),
    "linalg_lu": lambda m, n: lu(m, n),
    "_lu_with_info": lambda m, n: lu(m, n),
    "linalg_ldl_factor_ex": lambda m, n: n**3 // 3,
    "linalg_inv": lambda m, n: 2 * n**3,
    "linalg_inv_ex": lambda m, n: 2 * n**3,
    "inverse": lambda m, n: 2 * n**3,
    "det": lambda m, n: lu(n, n),
    "linalg_det": lambda m, n: lu(n, n),
    "_linalg_det": lambda m, n: lu(n, n),
    "slogdet": lambda m, n: lu(n, n),
    "linalg_slogdet": lambda m, n: lu(n, n),
    "_linalg_slogdet": lambda m, n: lu(n, n),
    "logdet": lambda m, n: lu(n, n),
    "qr": lambda m, n: 2 * qr(m, n),
    "linalg_qr": lambda m, n: 2 * qr(m, n),
    "geqrf": lambda m, n: qr(m, n),
    "linalg_householder_product": lambda m, n: qr(m, n),
    "orgqr": lambda m, n: qr(m, n),
    "svd": lambda m, n: svd(m, n),
    "linalg_svd": lambda m, n: svd(m, n),
    "_linalg_svd": lambda m, n: svd(m, n),
    "linalg_svdvals": lambda m, n: bidiagonal(m, n),
    "linalg_eigh": lambda m, n: 9 * n**3,
    "_linalg_eigh": lambda m, n: 9 * n**3,
    "linalg_eigvalsh": lambda m, n: 4 * n**3 // 3,
    "linalg_eig": lambda m, n: 25 * n**3,
    "linalg_eigvals": lambda m, n: 10 * n**3,
    "linalg_pinv": lambda m, n: svd(m, n) + 2 * m * n * min(m, n),
    "pinverse": lambda m, n: svd(m, n) + 2 * m * n * min(m, n),
    "linalg_matrix_rank": lambda m, n: bidiagonal(m, n),
    "linalg_cond": lambda m, n: bidiagonal(m, n),
    "linalg_matrix_exp": lambda m, n: (
        14 * n**3
    ),  # degree 12 Taylor: 4 products, 3 squarings at most
    "matrix_exp": lambda m, n: 14 * n**3,
}


def lu(m: int, n: int) -> int:
    """m·n² − n³/3 for m ≥ n, the other way round else."""
    big, small = max(m, n), min(m, n)
    return big * small**2 - small**3 // 3


def qr(m: int, n: int) -> int:
    """2·m·n² − 2·n³/3 for m ≥ n; forming Q costs the same again."""
    big, small = max(m, n), min(m, n)
    return 2 * big * small**2 - 2 * small**3 // 3


def bidiagonal(m: int, n: int) -> int:
    """4·m·n² − 4·n³/3: singular values alone."""
    big, small = max(m, n), min(m, n)
    return 4 * big * small**2 - 4 * small**3 // 3


def svd(m: int, n: int) -> int:
    """14·m·n² + 8·n³ with both sets of vectors in the thin form."""
    big, small = max(m, n), min(m, n)
    return 14 * big * small**2 + 8 * small**3


def _matrix(call: OpCall, number: int = 0) -> tuple[TensorSpec, int, int, int]:
    """(tensor, batch, m, n)."""
    x = need(call, number, "matrix")
    shape = sizes(x)
    if len(shape) < 2:
        raise CannotKnow(f"not a matrix: {list(shape)}")
    return x, product(shape[:-2]), shape[-2], shape[-1]


def _real(dtype: str, flops: int) -> int:
    return 4 * flops if dtype.startswith("c") else flops


@op(*(f"aten::{name}" for name in FACTORS), family="linalg",
    source="LAPACK Working Note 41: opscope.core.perf.linalg.FACTORS")  # fmt: skip
def factorise(call: OpCall) -> Cost:
    """LAPACK's leading terms for each matrix of the batch."""
    x, batch, m, n = _matrix(call)
    word = call.name.rsplit("::", 1)[-1].partition(".")[0].rstrip("_").rsplit(".", 1)[-1]
    if word in ("qr", "linalg_qr") and call.param("mode") == "r":
        flops = qr(m, n)
    elif word in ("linalg_svd", "_linalg_svd") and call.param("compute_uv") is False:
        flops = bidiagonal(m, n)
    else:
        flops = FACTORS[word](m, n)
    writes = outputs(call) or [x]
    return cost([x], [*writes], matrix=_real(x.dtype, batch * flops), dtype=x.dtype)


@op(
    "aten::linalg_solve",
    "aten::linalg_solve_ex",
    "aten::_linalg_solve_ex",
    "aten::linalg_solve_triangular",
    "aten::triangular_solve",
    "aten::cholesky_solve",
    "aten::linalg_lu_solve",
    "aten::lu_solve",
    "aten::linalg_lstsq",
    "aten::_cholesky_solve_helper",
    family="linalg",
    source="LAPACK Working Note 41: factor where it is part of the op, then 2·n²·k (triangular n²·k)",
)
def solve(call: OpCall) -> Cost:
    """n²·k a triangular system, 2·n²·k two of them, and the factorisation where it is included."""
    a, _, m, n = _matrix(call)
    b = need(call, 1, "right-hand side")
    word = call.name.rsplit("::", 1)[-1]
    if "cholesky_solve" in word or "lu_solve" in word or word.startswith("triangular_solve"):
        if "linalg_lu_solve" not in word:  # right-hand side first in these
            a, b = b, a
        else:
            b = tensors(call)[-1]
    left, right = sizes(a), sizes(b)
    m, n = left[-2], left[-1]
    vector = len(right) == 1 or len(right) == len(left) - 1
    k = 1 if vector else right[-1]
    batch = max(product(left[:-2]), product(right[:-2]) if not vector else 1)
    if "triangular" in word:
        flops = n * n * k
    elif "cholesky_solve" in word or "lu_solve" in word:
        flops = 2 * n * n * k
    elif "lstsq" in word:
        flops = qr(m, n) + (4 * m * n - 2 * n * n) * k + n * n * k
    else:
        flops = lu(n, n) + 2 * n * n * k
    writes = outputs(call) or [b]
    reads = distinct_tensors(call)
    return cost([*reads], [*writes], matrix=_real(a.dtype, batch * flops), dtype=a.dtype)


@op("aten::matrix_power", "aten::linalg_matrix_power", family="linalg",
    source="2·n³ a product, by repeated squaring")  # fmt: skip
def matrix_power(call: OpCall) -> Cost:
    """⌊log2 p⌋ squarings and a product for each further binary one of p."""
    x, batch, _, n = _matrix(call)
    power = call.param("n")
    if not isinstance(power, int) or isinstance(power, bool):
        raise CannotKnow("the trace does not record the power")
    p = abs(power)
    products = max(p.bit_length() - 1, 0) + max(bin(p).count("1") - 1, 0)
    flops = batch * products * 2 * n**3 + (2 * n**3 * batch if power < 0 else 0)
    return cost([x], [x], matrix=_real(x.dtype, flops), dtype=x.dtype)


@op("aten::cross", "aten::linalg_cross", family="elementwise", source="3 an element")
def cross(call: OpCall) -> Cost:
    """Two products and a difference for each element."""
    a, b = need(call, 0, "operand"), need(call, 1, "operand")
    return cost([a, b], [a], vector=3 * product(sizes(a)), dtype=a.dtype)
