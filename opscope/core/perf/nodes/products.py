"""Cost models of matrix product nodes: plain, packed, banded, sparse, and of experts."""

from __future__ import annotations

from opscope.core.perf.registry import CannotKnow, Cost, op, variant, words
from opscope.core.perf.shapes import (
    NO_OUTPUTS,
    NO_SHAPES,
    Part,
    as_ints,
    broadcast,
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
    tensors,
)
from opscope.core.schema import OpCall, TensorSpec


def _flag(call: OpCall, *keys: str) -> bool:
    return any(call.param(key) in (True, 1) for key in keys)


@op(
    *words(
        """
        MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Gemm Dense MatMulV2 MatMulExt FusedMatMul
        FusedGemm _FusedMatMul _FusedBatchMatMulV2 _MklMatMul _MklFusedMatMul _MklNativeMatMul
        _MklNativeFusedMatMul _MklNativeBatchMatMulV2 MatMulInteger MatMulInteger16 QLinearMatMul
        QuantizedMatMul SparseMatMul MatMulBiasAddFusion BiasDense QGemm MatMulIntegerToFloat
        DynamicQuantizeMatMul
        """
    ),
    family="gemm",
    source="2·M·N·K, with the transposes from the parameters",
    variants={
        "qlinear": "QLinearMatMul QGemm MatMulIntegerToFloat DynamicQuantizeMatMul",
        "plain": "Gemm FusedGemm QGemm",
    },
)
def matmul(call: OpCall) -> Cost:
    """The first two operands are the factors; a fused addition or activation counts no FLOPs."""
    operands = tensors(call)
    if variant(call, "qlinear"):
        operands = [t for t in operands if len(t.shape) >= 2]  # without scales and zero points
    if len(operands) < 2:
        raise CannotKnow(NO_SHAPES)
    a, b = operands[0], operands[1]
    left, right = sizes(a), sizes(b)
    if len(left) < 1 or len(right) < 1:
        raise CannotKnow(f"not matrices: {list(left)} and {list(right)}")
    if variant(call, "plain") and len(right) != 2:  # ONNX Runtime packs the weight, and drops it
        raise CannotKnow("the trace has no shape for the packed weight")
    if _flag(call, "transBatchA") and len(left) > 2:  # [M, batch…, K]
        left = (*left[1:-1], left[0], left[-1])
    if _flag(call, "transBatchB") and len(right) > 2:
        right = (*right[1:-1], right[0], right[-1])
    if _flag(call, "transpose_a", "transA", "adj_x", "transpose_x1") and len(left) > 1:
        left = (*left[:-2], left[-1], left[-2])
    swap = _flag(call, "transpose_b", "transB", "adj_y", "transpose_x2") or call.name in (
        "Dense", "BiasDense",
    )  # fmt: skip
    if swap and len(right) > 1:
        right = (*right[:-2], right[-1], right[-2])
    k = left[-1]
    if k != (right[-2] if len(right) > 1 else right[0]):
        raise CannotKnow(f"the inner dimensions differ: {list(left)} and {list(right)}")
    out = output(call)
    dtype = b.dtype if call.name == "DynamicQuantizeMatMul" else promote([a, b])
    if out is None:
        lead = broadcast(left[:-2], right[:-2])
        tail = (right[-1],) if len(right) > 1 else ()
        out = TensorSpec(dtype, (*lead, *left[-2:-1], *tail))
    rest: list[Part] = [t for t in tensors(call) if t is not a and t is not b]
    return cost([a, b, *rest], [out], matrix=2 * numel(out) * k, dtype=dtype)


@op("MatMulNBits", "MatMulBnb4", "MatMulFpQ4", family="gemm", source="2·M·N·K, the weight packed")
def packed_matmul(call: OpCall) -> Cost:
    """K and N are parameters; the weight is read in its packed form."""
    x = need(call, 0, "input")
    n, k = as_ints(call.param("N")), as_ints(call.param("K"))
    if n is None or k is None:
        raise CannotKnow("the trace does not record N and K of the packed weight")
    rows = product(sizes(x)[:-1])
    out = output(call) or TensorSpec(x.dtype, (*sizes(x)[:-1], n[0]))
    return cost(tensors(call), [out], matrix=2 * rows * n[0] * k[0], dtype=x.dtype)


@op(
    "FFN",
    "FFNExt",
    "MatmulFfn",
    "MatmulQkv",
    family="gemm",
    source="2·rows·(elements of the weights)",
)
def products(call: OpCall) -> Cost:
    """One input multiplied by several weight matrices, in parallel or in sequence."""
    x = need(call, 0, "input")
    weights = [t for t in tensors(call)[1:] if len(t.shape) == 2]
    if not weights or not sizes(x):
        raise CannotKnow("the trace has no shapes for the weights")
    rows = product(sizes(x)[:-1])
    flops = 2 * rows * sum(map(numel, weights))
    return cost(
        distinct_tensors(call), outputs(call), matrix=flops, dtype=x.dtype, reason=NO_OUTPUTS
    )


@op(
    "MoE",
    "QMoE",
    family="gemm",
    source="each token passes k experts, each with one product up and one down",
)
def experts(call: OpCall) -> Cost:
    """Operands: input [T, H], router [T, E], weights [E, H, I] and [E, I, H]; ``k`` experts per token."""
    operands = tensors(call)
    x = need(call, 0, "input")
    weights = [t for t in operands[1:] if len(t.shape) == 3]
    k = as_ints(call.param("k"))
    if len(weights) < 2 or call.name == "QMoE" or k is None:
        raise CannotKnow(
            "the experts' weights are packed, or the number of experts per token is not recorded"
        )
    pairs = product(sizes(x)[:-1]) * k[0]
    flops = 2 * pairs * sum(product(sizes(w)[1:]) for w in weights)
    return cost(distinct_tensors(call), [output(call) or x], matrix=flops, dtype=x.dtype)


@op("SparseTensorDenseMatMul", "SparseTensorDenseMatmul", family="gemm", source="2·stored·N")
def sparse_dense(call: OpCall) -> Cost:
    """Operands: indices [stored, 2], values [stored], the shape, and the dense matrix."""
    indices, values, _, dense = (need(call, n, "operand") for n in range(4))
    right = sizes(dense)
    if len(right) != 2:
        raise CannotKnow(f"not a matrix: {list(right)}")
    wide = right[0] if call.param("adjoint_b") is True else right[1]
    stored = numel(values)
    read = min(stored * wide, numel(dense))
    out = output(call)
    return cost(
        [indices, values, span(dense, read)],
        None if out is None else [out],
        matrix=2 * stored * wide,
        dtype=promote([values, dense]),
        reason=NO_OUTPUTS,
    )


@op("TridiagonalSolve", "TridiagonalMatMul", "BandedTriangularSolve", family="linalg",
    source="Thomas: 3 per row to eliminate, 5 per row and right-hand side; product 5; 2·bands",
    variants={"solve": "TridiagonalSolve BandedTriangularSolve"})  # fmt: skip
def banded(call: OpCall) -> Cost:
    """Operands: diagonals [..., 3, n] (or [..., bands, n]) and right-hand sides [..., n, k]."""
    a, b = need(call, 0, "diagonals"), tensors(call)[-1]
    right = sizes(b)
    if len(right) < 2 or len(sizes(a)) < 1:
        raise CannotKnow("the shapes are not those of a banded system")
    rows = product(right[:-1])
    k = right[-1]
    if call.name == "BandedTriangularSolve":
        bands = sizes(a)[-2] if len(sizes(a)) > 1 else 1
        flops = 2 * bands * rows * k
    else:
        flops = (5 * k + 3 if variant(call, "solve") else 5 * k) * rows
    return cost(distinct_tensors(call), [output(call) or b], vector=flops, dtype=b.dtype)
