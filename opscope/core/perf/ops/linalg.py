"""Dense linear algebra, with LAPACK's own operation counts for real matrices.

The counts are the leading terms of LAPACK Working Note 41, appendix C (E. Anderson, J. Dongarra,
S. Ostrouchov). Complex arithmetic costs four times as many real operations. Iterative algorithms
(eigenvalues, SVD) have the usual averages (G. Golub, C. Van Loan, "Matrix Computations", 4th ed.).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from opscope.core.perf.registry import CannotKnow, Cost, op, variant, word_of, words
from opscope.core.perf.shapes import (
    broadcast,
    cost,
    distinct_tensors,
    int_param,
    need,
    numel,
    output,
    outputs,
    product,
    sizes,
    tensors,
)
from opscope.core.schema import OpCall, TensorSpec


def lu(m: int, n: int) -> int:
    """Return m·n² − n³/3 FLOP for m ≥ n, else n·m² − m³/3."""
    big, small = max(m, n), min(m, n)
    return big * small**2 - small**3 // 3


def qr(m: int, n: int) -> int:
    """Return 2·m·n² − 2·n³/3 FLOP for m ≥ n; forming Q costs the same again."""
    big, small = max(m, n), min(m, n)
    return 2 * big * small**2 - 2 * small**3 // 3


def bidiagonal(m: int, n: int) -> int:
    """Return 4·m·n² − 4·n³/3 FLOP: singular values only."""
    big, small = max(m, n), min(m, n)
    return 4 * big * small**2 - 4 * small**3 // 3


def svd(m: int, n: int) -> int:
    """Return 14·m·n² + 8·n³ FLOP: both sets of vectors in the thin form."""
    big, small = max(m, n), min(m, n)
    return 14 * big * small**2 + 8 * small**3


#: FLOPs of a factorisation of an m × n matrix.
FACTORS: Final[dict[str, Callable[[int, int], int]]] = {
    **dict.fromkeys(
        words("cholesky linalg_cholesky linalg_cholesky_ex linalg_ldl_factor linalg_ldl_factor_ex"),
        lambda m, n: n**3 // 3,
    ),
    "cholesky_inverse": lambda m, n: 2 * n**3 // 3,
    **dict.fromkeys(words("linalg_lu_factor linalg_lu_factor_ex linalg_lu _lu_with_info"), lu),
    **dict.fromkeys(
        words("det linalg_det _linalg_det slogdet linalg_slogdet _linalg_slogdet logdet"),
        lambda m, n: lu(n, n),
    ),
    **dict.fromkeys(words("linalg_inv linalg_inv_ex inverse"), lambda m, n: 2 * n**3),
    **dict.fromkeys(words("qr linalg_qr"), lambda m, n: 2 * qr(m, n)),
    **dict.fromkeys(words("geqrf linalg_householder_product orgqr"), qr),
    **dict.fromkeys(words("svd linalg_svd _linalg_svd"), svd),
    **dict.fromkeys(words("linalg_svdvals linalg_matrix_rank linalg_cond"), bidiagonal),
    **dict.fromkeys(words("linalg_eigh _linalg_eigh"), lambda m, n: 9 * n**3),
    "linalg_eigvalsh": lambda m, n: 4 * n**3 // 3,
    "linalg_eig": lambda m, n: 25 * n**3,
    **dict.fromkeys(words("linalg_eigvals _linalg_eigvals"), lambda m, n: 10 * n**3),
    **dict.fromkeys(words("linalg_pinv pinverse"), lambda m, n: svd(m, n) + 2 * m * n * min(m, n)),
    # degree 12 Taylor: 4 products, 3 squarings at most
    **dict.fromkeys(words("linalg_matrix_exp matrix_exp"), lambda m, n: 14 * n**3),
}


def _matrix(call: OpCall, number: int = 0) -> tuple[TensorSpec, int, int, int]:
    """Return (tensor, batch, m, n) of input ``number``. Raises CannotKnow if it is not a matrix."""
    x = need(call, number, "matrix")
    shape = sizes(x)
    if len(shape) < 2:
        raise CannotKnow(f"not a matrix: {list(shape)}")
    return x, product(shape[:-2]), shape[-2], shape[-1]


@op(*(f"aten::{name}" for name in FACTORS), family="linalg",
    source="LAPACK Working Note 41: opscope.core.perf.ops.linalg.FACTORS",
    variants={"native_call": "aten::_*"})  # fmt: skip
def factorise(call: OpCall) -> Cost:
    """LAPACK's leading terms, for each matrix of the batch."""
    x, batch, m, n = _matrix(call)
    word = word_of(call.name)
    if word in ("qr", "linalg_qr") and call.param("mode") == "r":
        flops = qr(m, n)
    elif word in ("linalg_svd", "_linalg_svd") and call.param("compute_uv") is False:
        flops = bidiagonal(m, n)
    elif word == "_linalg_eigh" and call.param("compute_v") is False:
        flops = FACTORS["linalg_eigvalsh"](m, n)
    else:
        flops = FACTORS[word](m, n)
    writes = outputs(call) or factors(word, call, x, m, n)
    reflectors = word in ("linalg_householder_product", "orgqr")
    reads = tensors(call)[:2] if reflectors else [x]
    return cost(reads, writes, matrix=batch * flops, dtype=x.dtype)


_REAL = {"c64": "f32", "c128": "f64", "c32": "f16"}
_COMPLEX = {real: dtype for dtype, real in _REAL.items()}


def factors(word: str, call: OpCall, x: TensorSpec, m: int, n: int) -> list[TensorSpec]:
    """Return the results of factorising ``x`` by the op's schema, for a trace without outputs."""
    lead, small = tuple(x.shape[:-2]), min(m, n)
    word = word.removeprefix("linalg_").removeprefix("_linalg_")

    def made(*last: int, dtype: str = x.dtype) -> TensorSpec:
        return TensorSpec(dtype, (*lead, *last))

    real = _REAL.get(x.dtype, x.dtype)
    info, pivots = made(dtype="i32"), made(small, dtype="i32")
    wide = _COMPLEX.get(x.dtype, x.dtype)
    if word in ("qr", "lu"):
        complete = call.param("mode") == "complete"
        results = [made(m, m if complete else small), made(m if complete else small, n)]
        return results if word == "qr" else [made(m, m), *results]
    if word == "eigh" and call.param("compute_v") is False:
        return [made(n, dtype=real)]
    if word in ("svd", "_linalg_svd"):
        full = call.param("full_matrices", not variant(call, "native_call")) is True
        full = full and call.param("some") is not True
        results = [
            made(m, m if full else small),
            made(small, dtype=real),
            made(n if full else small, n),
        ]
        return results[1:2] if call.param("compute_uv") is False else results
    by_word = {
        "eig": [made(n, dtype=wide), made(n, n, dtype=wide)],
        "eigvals": [made(n, dtype=wide)],
        "eigh": [made(n, dtype=real), x],
        "eigvalsh": [made(n, dtype=real)],
        "svdvals": [made(small, dtype=real)],
        "cholesky_ex": [x, info],
        "inv_ex": [x, info],
        "lu_factor": [x, pivots],
        "lu_factor_ex": [x, pivots, info],
        "ldl_factor": [x, made(n, dtype="i32")],
        "ldl_factor_ex": [x, made(n, dtype="i32"), info],
        "geqrf": [x, made(small)],
        "det": [made(), x, pivots] if variant(call, "native_call") else [made()],
        "slogdet": [made(), made(dtype=real)],
        "logdet": [made()],
        "matrix_rank": [made(dtype="i64")],
        "cond": [made(dtype=real)],
        "pinv": [made(n, m)],
        "pinverse": [made(n, m)],
    }
    if word == "slogdet" and variant(call, "native_call"):
        return [made(), made(dtype=real), x, pivots]
    return by_word.get(word, [x])


@op("aten::ormqr", family="linalg", source="4·m·n·k − 2·n·k² (LAPACK Working Note 41)")
def ormqr(call: OpCall) -> Cost:
    """Apply the k reflectors of a factorisation to an m × n matrix, from the left or the right."""
    a, tau, x = (need(call, n, "operand") for n in range(3))
    shape = sizes(x)
    if len(shape) < 2 or not sizes(tau):
        raise CannotKnow(f"not a matrix: {list(shape)}")
    batch, m, n, k = product(shape[:-2]), shape[-2], shape[-1], sizes(tau)[-1]
    flops = 4 * m * n * k - 2 * (n if call.param("left", True) else m) * k * k
    matrix = batch * max(flops, 0)
    return cost([a, tau, x], [output(call) or x], matrix=matrix, dtype=x.dtype)


@op(
    "aten::linalg_solve",
    "aten::linalg_solve_ex",
    "aten::_linalg_solve_ex",
    "aten::linalg_solve_triangular",
    "aten::triangular_solve",
    "aten::cholesky_solve",
    "aten::linalg_lu_solve",
    "aten::lu_solve",
    "aten::linalg_ldl_solve",
    "aten::linalg_lstsq",
    "aten::_cholesky_solve_helper",
    family="linalg",
    source="LAPACK Working Note 41: the factorisation if the op includes it, then 2·n²·k (triangular n²·k)",
    variants={
        "right_side_first": "aten::cholesky_solve aten::_cholesky_solve_helper aten::lu_solve "
        "aten::triangular_solve",
        "right_side_last": "aten::linalg_ldl_solve aten::linalg_lu_solve",
        "triangular": "aten::linalg_solve_triangular aten::triangular_solve",
        "factored": "aten::cholesky_solve aten::_cholesky_solve_helper aten::lu_solve "
        "aten::linalg_lu_solve aten::linalg_ldl_solve",
        "least_squares": "aten::linalg_lstsq",
        "factors_too": "aten::linalg_solve_ex aten::_linalg_solve_ex",
        "matrix_too": "aten::_linalg_solve_ex",
        "copy_too": "aten::triangular_solve",
    },
)
def solve(call: OpCall) -> Cost:
    """n²·k for a triangular system, 2·n²·k for two, and the factorisation if the op includes it."""
    a, _, m, n = _matrix(call)
    b = need(call, 1, "right-hand side")
    if variant(call, "right_side_first"):
        a, b = b, a
    elif variant(call, "right_side_last"):
        b = tensors(call)[-1]
    left, right = sizes(a), sizes(b)
    m, n = left[-2], left[-1]
    # only linalg_solve's kinds take a batch of vectors: the others take matrices, repeated over the batch
    vector = len(right) == 1 or (right == left[:-1] and not variant(call, "factored"))
    k = 1 if vector else right[-2 if call.param("left") is False else -1]  # X·A = B: B's rows
    batch = max(product(left[:-2]), product(right[:-2]) if not vector else 1)
    if variant(call, "triangular"):
        flops = n * n * k
    elif variant(call, "factored"):
        flops = 2 * n * n * k
    elif variant(call, "least_squares"):
        flops = max(qr(m, n) + (4 * m * n - 2 * n * n) * k + n * n * k, 0)
    else:
        flops = lu(n, n) + 2 * n * n * k
    writes = outputs(call) or [b]
    if outputs(call) is None and variant(call, "factors_too"):
        lead = left[:-2]
        pivots = [TensorSpec("i32", (*lead, n)), TensorSpec("i32", lead)]
        writes = [b, *([a, *pivots] if variant(call, "matrix_too") else pivots[1:])]
    elif outputs(call) is None and variant(call, "least_squares"):
        writes = [TensorSpec(b.dtype, (*right[:-2], n, k))]
        if m > n:  # add the residual of each right-hand side
            writes.append(TensorSpec(b.dtype, (*right[:-2], k)))
    elif outputs(call) is None and not vector and product(right[:-2]) < batch:
        writes = [TensorSpec(b.dtype, (*left[:-2], *right[-2:]))]
    elif outputs(call) is None and variant(call, "copy_too"):
        writes = [b, a]
    reads = distinct_tensors(call)
    return cost(reads, writes, matrix=batch * flops, dtype=a.dtype)


@op("aten::matrix_power", "aten::linalg_matrix_power", family="linalg",
    source="2·n³ per product, by repeated squaring")  # fmt: skip
def matrix_power(call: OpCall) -> Cost:
    """⌊log2 p⌋ squarings, and a product per 1 bit of p but the first; a negative power adds an inverse."""
    x, batch, _, n = _matrix(call)
    power = call.param("n")
    if not isinstance(power, int) or isinstance(power, bool):
        raise CannotKnow("the trace does not record the power")
    p = abs(power)
    products = max(p.bit_length() - 1, 0) + max(bin(p).count("1") - 1, 0)
    flops = batch * products * 2 * n**3 + (2 * n**3 * batch if power < 0 else 0)
    return cost([x], [x], matrix=flops, dtype=x.dtype)


@op("aten::cross", "aten::linalg_cross", family="elementwise", source="3 per element")
def cross(call: OpCall) -> Cost:
    """Two products and a difference per element."""
    a, b = need(call, 0, "operand"), need(call, 1, "operand")
    shape = broadcast(sizes(a), sizes(b))
    out = output(call) or TensorSpec(a.dtype, shape)
    return cost([a, b], [out], vector=3 * product(shape), dtype=a.dtype)


@op("aten::linalg_tensorinv", "aten::linalg_tensorsolve", family="linalg",
    source="as for a matrix of the same elements: inverse 2·N³, solve LU + 2·N²")  # fmt: skip
def as_matrix(call: OpCall) -> Cost:
    """Treat the tensor as a square matrix; N is the product of its leading dimensions."""
    x = need(call, 0, "tensor")
    if word_of(call.name) == "linalg_tensorsolve":
        b = need(call, 1, "right-hand side")
        n = numel(b)
        out = output(call) or TensorSpec(b.dtype, (n,))
        flops = lu(n, n) + 2 * n * n
        return cost([x, b], [out], matrix=flops, dtype=x.dtype)
    ind = int_param(call, "ind", 2)
    n = product(sizes(x)[:ind])
    if n * n != numel(x) or ind <= 0:
        raise CannotKnow(
            f"the tensor's first {ind} dimensions do not make a square matrix: {list(x.shape)}"
        )
    return cost([x], [output(call) or x], matrix=2 * n**3, dtype=x.dtype)


@op(
    "aten::_compute_linear_combination",
    family="linalg",
    source="2 per multiply-add",
)
def linear_combination(call: OpCall) -> Cost:
    """n sums of m tensors each, with coefficients [n, m]."""
    x, rows = need(call, 0, "tensors"), need(call, 1, "coefficients")
    n, m = sizes(rows)
    shape = sizes(x)
    if not shape or shape[0] != m:
        raise CannotKnow(f"{m} coefficients do not fit a tensor of shape {list(shape)}")
    out = output(call) or TensorSpec(x.dtype, (n, *shape[1:]))
    flops = 2 * n * numel(x)
    return cost([x, rows], [out], matrix=flops, dtype=x.dtype)
