"""Matrix products: 2·M·N·K FLOPs, and the bytes of each matrix once."""

from __future__ import annotations

from opscope.core.perf.registry import CannotKnow, Cost, backward_of, lookup, op, variant
from opscope.core.perf.shapes import (
    NO_OUTPUTS,
    Part,
    Span,
    broadcast,
    cost,
    distinct_tensors,
    dtype_param,
    lists,
    multiply_adds,
    need,
    numel,
    output,
    outputs,
    product,
    promote,
    result,
    sizes,
    tensors,
)
from opscope.core.schema import OpCall, TensorSpec

SOURCE = "2·M·N·K, bias not counted (torch.utils.flop_counter)"


def product_cost(
    call: OpCall,
    a: TensorSpec,
    b: TensorSpec,
    out: tuple[int, ...],
    k: int,
    *more: Part,
    dtype: str | None = None,
) -> Cost:
    """Return the cost of a product with result shape ``out``, summed over ``k``, that also reads ``more``.

    ``dtype``: the result's, if it is not the factors'.
    """
    written = result(call, out, dtype or promote([a, b]))
    repeated = a == b and len(tensors(call)) != len(distinct_tensors(call))
    return cost(
        [a, None if repeated else b, *more],
        [written],
        matrix=2 * product(out) * k,
        dtype=promote([a, b]),
    )


def _same(left: int, right: int) -> None:
    if left != right:
        raise CannotKnow(f"inner dimensions differ: {left} and {right}")


def _two_d(a: TensorSpec, b: TensorSpec) -> tuple[tuple[int, int], int]:
    left, right = sizes(a), sizes(b)
    if len(left) != 2 or len(right) != 2:
        raise CannotKnow(f"not matrices: {list(left)} and {list(right)}")
    _same(left[1], right[0])
    return (left[0], right[1]), left[1]


@op("aten::mm", "aten::_int_mm", family="gemm", source=SOURCE,
    variants={"integers": "aten::_int_mm"})  # fmt: skip
def mm(call: OpCall) -> Cost:
    """2·M·N·K."""
    a, b = need(call, 0, "first matrix"), need(call, 1, "second matrix")
    out, k = _two_d(a, b)
    return product_cost(call, a, b, out, k, dtype="i32" if variant(call, "integers") else None)


@op(
    "aten::addmm",
    "aten::_addmm_activation",
    family="gemm",
    source=SOURCE,
    variants={"adds": "aten::addmm aten::_addmm_activation"},
)
def addmm(call: OpCall) -> Cost:
    """2·M·N·K; the addend is read and counts no FLOPs."""
    add, a, b = (need(call, n, "matrix") for n in range(3))
    out, k = _two_d(a, b)
    # with beta = 0 the first argument is not read
    return product_cost(call, a, b, out, k, None if call.param("beta") == 0 else add)


@op(
    "aten::_scaled_mm",
    "aten::_scaled_mm_v2",
    "aten::_weight_int8pack_mm",
    "aten::_weight_int4pack_mm",
    "aten::_weight_int4pack_mm_for_cpu",
    "aten::_weight_int4pack_mm_with_scales_and_zeros",
    "vllm::cutlass_scaled_mm",
    "_C::cutlass_scaled_mm",
    family="gemm",
    source=SOURCE,
    variants={
        "result_first": "vllm::cutlass_scaled_mm _C::cutlass_scaled_mm",
        "rows_of_weights": "aten::_weight_int8pack_mm aten::_weight_int4pack_mm_for_cpu",
        "as_input": "aten::_weight_*",
    },
)
def scaled_mm(call: OpCall) -> Cost:
    """2·M·N·K of two narrow matrices, read with their scales."""
    operands = tensors(call)
    if variant(call, "result_first") and len(operands) > 2:  # the result comes first
        operands = [*operands[1:], operands[0]]
        a, b, more = operands[0], operands[1], operands[2:-1]
    else:
        a, b = need(call, 0, "first matrix"), need(call, 1, "second matrix")
        more = operands[2:]
    left, right = sizes(a), sizes(b)
    if len(left) != 2 or len(right) not in (2, 4):
        raise CannotKnow(f"not matrices: {list(left)} and {list(right)}")
    if variant(call, "rows_of_weights"):  # [N, K], or [N, K/2]
        right = right[::-1]
    out = output(call)
    # int4, in tiles: N is 8 times the first size, K the product of the others
    if len(right) == 4:
        shape, k = (left[0], 8 * right[0]), left[1]
        if right[1] * right[2] * right[3] != k:
            raise CannotKnow(f"the packed weight {list(right)} does not fit K = {k}")
    else:
        shape, k = (left[0], right[1]), left[1]
        if right[0] != k:
            k = max(k, right[0])  # 4-bit types are packed two to a byte along K on one side
        elif a.dtype == b.dtype == "u8":
            k *= 2  # or on both: bytes are no type of these products
    if out is None and variant(call, "as_input"):
        out = TensorSpec(a.dtype, shape)
    wider = dtype_param(call, "?", "out_dtype")  # a trace without outputs may hold the argument
    if out is None and wider != "?":
        out = TensorSpec(wider, shape)
    writes = None if out is None else [out]
    return cost(
        [a, b, *more],
        writes,
        matrix=2 * product(shape) * k,
        dtype="f4e2m1" if a.dtype == b.dtype == "u8" else a.dtype,
        reason="the trace does not record the result's dtype",
    )


@op(
    "aten::bmm",
    "aten::baddbmm",
    "aten::addbmm",
    family="gemm",
    source=SOURCE,
    variants={
        "adds": "aten::baddbmm aten::addbmm",
        "over_the_batch": "aten::addbmm",
    },
)
def bmm(call: OpCall) -> Cost:
    """2·B·M·N·K."""
    plain = not variant(call, "adds")
    a, b = need(call, 0 if plain else 1, "matrices"), need(call, 1 if plain else 2, "matrices")
    left, right = sizes(a), sizes(b)
    if len(left) != 3 or len(right) != 3:
        raise CannotKnow(f"not batches of matrices: {list(left)} and {list(right)}")
    _same(left[0], right[0])
    _same(left[2], right[1])
    more = None if plain or call.param("beta") == 0 else need(call, 0, "addend")
    out = (left[0], left[1], right[2])
    if variant(call, "over_the_batch"):  # K is B·K
        return product_cost(call, a, b, out[1:], left[0] * left[2], more)
    return product_cost(call, a, b, out, left[2], more)


def matmul_shape(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Return the result shape and K of NumPy's matmul.

    A 1-d operand is a row or a column; the batch dimensions broadcast. Raises CannotKnow if they do not
    fit.
    """
    if not left or not right:
        raise CannotKnow("an operand of matmul is a scalar")
    a = (1, *left) if len(left) == 1 else left
    b = (*right, 1) if len(right) == 1 else right
    _same(a[-1], b[-2])
    out: tuple[int, ...] = (*broadcast(a[:-2], b[:-2]), a[-2], b[-1])
    if len(left) == 1:
        out = (*out[:-2], out[-1])
    if len(right) == 1:
        out = out[:-1]
    return out, a[-1]


@op(
    "aten::matmul",
    "aten::mv",
    "aten::dot",
    "aten::vdot",
    "aten::inner",
    "aten::linalg_vecdot",
    "aten::linalg_matmul",
    family="gemm",
    source=SOURCE,
    variants={"vecdot": "aten::linalg_vecdot", "inner": "aten::inner"},
)
def matmul(call: OpCall) -> Cost:
    """2 per multiply-add; batch dimensions broadcast."""
    a, b = need(call, 0, "first operand"), need(call, 1, "second operand")
    left, right = sizes(a), sizes(b)
    if variant(call, "vecdot"):
        both = broadcast(left, right)
        return product_cost(call, a, b, both[:-1], both[-1] if both else 1)
    if variant(call, "inner") and left and right:
        _same(left[-1], right[-1])
        return product_cost(call, a, b, (*left[:-1], *right[:-1]), left[-1])
    out, k = matmul_shape(left, right)
    return product_cost(call, a, b, out, k)


@op(
    "aten::addmv",
    "aten::addr",
    family="gemm",
    source=SOURCE,
    variants={"outer": "aten::addr"},
)
def addmv(call: OpCall) -> Cost:
    """2·M·K; addr's outer product 2·M·N."""
    add, a, b = (need(call, n, "operand") for n in range(3))
    left, right = sizes(a), sizes(b)
    more = None if call.param("beta") == 0 else add
    if variant(call, "outer"):
        return product_cost(call, a, b, (left[0], right[0]), 1, more)
    _same(left[-1], right[-1])
    return product_cost(call, a, b, left[:-1], left[-1], more)


@op(
    "aten::linear",
    "aten::mkldnn_linear",
    "mkldnn::_linear_pointwise",
    "mkl::_mkl_linear",
    family="gemm",
    source=SOURCE,
    variants={"linear": "*linear*"},
)
def linear(call: OpCall) -> Cost:
    """2·batch·in·out, with weight [out, in]."""
    x, weight = need(call, 0, "input"), need(call, 1, "weight")
    shape, w = sizes(x), sizes(weight)
    if not shape or not 1 <= len(w) <= 2:
        raise CannotKnow(f"not a linear layer: {list(shape)} and {list(w)}")
    _same(shape[-1], w[-1])
    operands = tensors(call)
    bias = operands[2] if len(operands) > 2 else None
    return product_cost(call, x, weight, (*shape[:-1], *w[:-1]), w[-1], bias)


@op(
    "aten::bilinear",
    family="gemm",
    source="2 per multiply-add",
)
def bilinear(call: OpCall) -> Cost:
    """x1ᵀ·A·x2 for each output: 2·B·out·in1·in2 and then 2·B·out·in2."""
    x1, x2, weight = (need(call, n, "operand") for n in range(3))
    w, batch = sizes(weight), sizes(x1)[:-1]
    operands = tensors(call)
    flops = 2 * product(batch) * (product(w) + w[0] * w[2])
    return cost(
        [x1, x2, weight, *operands[3:]],
        [result(call, (*batch, w[0]), promote([x1, x2]))],
        matrix=flops,
        dtype=promote([x1, x2]),
    )


@op(
    "aten::outer",
    "aten::ger",
    "aten::kron",
    family="elementwise",
    source="one multiplication per element",
    variants={"kron": "aten::kron"},
)
def outer(call: OpCall) -> Cost:
    """One multiplication per element of the result."""
    a, b = need(call, 0, "first operand"), need(call, 1, "second operand")
    left, right = sizes(a), sizes(b)
    if variant(call, "kron"):
        rank = max(len(left), len(right))
        left = (1,) * (rank - len(left)) + left
        right = (1,) * (rank - len(right)) + right
        shape = tuple(x * y for x, y in zip(left, right, strict=True))
    else:
        shape = (product(left), product(right))
    dtype = promote([a, b])
    return cost([a, b], [result(call, shape, dtype)], vector=product(shape), dtype=dtype)


@op("inductor::_mm_plus_mm", family="gemm", source=SOURCE)
def mm_plus_mm(call: OpCall) -> Cost:
    """Two products, added into one result."""
    first, second = (
        _two_d(need(call, at, "matrix"), need(call, at + 1, "matrix")) for at in (0, 2)
    )
    a = need(call, 0, "matrix")
    flops = 2 * product(first[0]) * first[1] + 2 * product(second[0]) * second[1]
    out = TensorSpec(a.dtype, first[0])
    return cost(tensors(call)[:4], [out], matrix=flops, dtype=promote(tensors(call)[:4]))


@op(
    "aten::_grouped_mm",
    "aten::_foreach_mm",
    "aten::_scaled_grouped_mm",
    "aten::_scaled_grouped_mm_v2",
    "fbgemm::grouped_gemm",
    family="gemm",
    source="2·M·N·K per group; of 2-D by 3-D, the groups' M add up to the number of rows",
    variants={"v2": "aten::_scaled_grouped_mm_v2"},
)
def grouped_mm(call: OpCall) -> Cost:
    """Groups share the ragged dimension, so only its whole length counts."""
    groups = lists(call)
    if not variant(call, "v2") and len(groups) >= 2 and groups[0]:
        pairs = list(zip(groups[0], groups[1], strict=False))
        flops = 0
        for a, b in pairs:
            (m, n), k = _two_d(a, b)
            flops += 2 * m * n * k
        return cost(
            [*groups[0], *groups[1]],
            outputs(call),
            matrix=flops,
            dtype=promote(groups[0]),
            reason=NO_OUTPUTS,
        )
    a, b = need(call, 0, "first operand"), need(call, 1, "second operand")
    left, right = sizes(a), sizes(b)
    if len(left) == 2 and len(right) == 3:  # ragged M
        shape: tuple[int, ...] = (left[0], right[2])
        k = left[1]
    elif len(left) == 3 and len(right) == 3:
        shape, k = (left[0], left[1], right[2]), left[2]
    elif len(left) == 3 and len(right) == 2:  # ragged N
        shape, k = (left[1], right[1]), left[2]
    elif len(left) == 2 and len(right) == 2:  # ragged K: each group has a part of K
        offsets = next(
            (t for t in tensors(call)[2:] if t.dtype == "i32" and len(t.shape) == 1), None
        )
        if offsets is None:
            raise CannotKnow("the trace does not record the number of groups")
        groups_n = numel(offsets)
        flops = 2 * left[0] * right[1] * left[1]
        dtype = promote([a, b])
        out = result(call, (groups_n, left[0], right[1]), dtype)
        return cost(tensors(call), [out], matrix=flops, dtype=dtype)
    else:
        raise CannotKnow(f"not a grouped product: {list(left)} and {list(right)}")
    return product_cost(call, a, b, shape, k, *tensors(call)[2:])


@backward_of(
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::matmul",
    "aten::mv",
    "aten::dot",
    "aten::linear",
    "aten::_scaled_mm",
)
def gemm_backward(call: OpCall) -> tuple[Cost, Cost]:
    """dA = dC·Bᵀ and dB = Aᵀ·dC, each with the forward's multiply-adds, over the same three sizes."""
    entry = lookup(call.name)
    assert entry is not None, "only registered ops have a backward model"
    added = variant(call, "adds")
    a = need(call, 1 if added else 0, "first operand")
    b = need(call, 2 if added else 1, "second operand")
    dtype = promote([a, b])
    flops = multiply_adds(entry.model(call), dtype)
    grad = Span(dtype, _result_elements(call, a, b))
    return (
        cost([grad, b], [a], matrix=flops, dtype=dtype),
        cost([grad, a], [b], matrix=flops, dtype=dtype),
    )


@op(
    "aten::mkldnn_linear_backward_input",
    "aten::mkldnn_linear_backward_weights",
    family="gemm",
    source="2·M·N·K for the gradient",
    variants={"input": "aten::mkldnn_linear_backward_input"},
)
def linear_gradient(call: OpCall) -> Cost:
    """One gradient of a linear layer, with the forward's multiply-adds."""
    grad, other = need(call, 0, "gradient"), need(call, 1, "other operand")
    dtype = promote([grad, other])
    if variant(call, "input"):
        w = need(call, 1, "weight")
        rows, (n, k) = numel(grad) // max(sizes(grad)[-1], 1), sizes(w)
        out = output(call) or Span(grad.dtype, rows * k)
        return cost([grad, w], [out], matrix=2 * rows * n * k, dtype=dtype)
    n, k = sizes(grad)[-1], sizes(other)[-1]
    rows = numel(grad) // max(n, 1)
    bias = call.param("bias_defined") is True
    writes = [Span(other.dtype, n * k), Span(grad.dtype, n if bias else 0)]
    added = max(numel(grad) - n, 0) if bias else 0
    matrix = 2 * rows * n * k
    return cost([grad, other], [*writes], matrix=matrix, vector=added, dtype=dtype)


def _result_elements(call: OpCall, a: TensorSpec, b: TensorSpec) -> int:
    out = output(call)
    if out is not None:
        return numel(out)
    left, right = sizes(a), sizes(b)
    if variant(call, "linear"):
        return product((*left[:-1], *right[:-1]))
    return product(matmul_shape(left, right)[0])


@op(
    "aten::linear_backward",
    "aten::mkldnn_linear_backward",
    "aten::matmul_backward",
    family="gemm",
    source="2·M·N·K for each gradient that the mask requests",
    variants={"gradient_first": "aten::matmul_backward"},
)
def product_backward(call: OpCall) -> Cost:
    """Both gradients cost the forward's multiply-adds; the bias's is a sum over the rows."""
    mask = call.param("output_mask", call.param("mask"))
    if not isinstance(mask, tuple) or len(mask) < 2:
        raise CannotKnow("the trace does not record which gradients were requested (output_mask)")
    x, grad, w = (need(call, n, "operand") for n in range(3))
    if variant(call, "gradient_first"):  # both operands follow
        x, grad = grad, x
    k = sizes(x)[-1] if sizes(x) else 1
    each, dtype = 2 * numel(grad) * k, promote([x, w])
    total = Cost()
    if mask[0]:
        total += cost([grad, w], [x], matrix=each, dtype=dtype)
    if mask[1]:
        total += cost([None if mask[0] else grad, x], [w], matrix=each, dtype=dtype)
    if len(mask) > 2 and mask[2]:
        wide = sizes(grad)[-1]
        alone = not (mask[0] or mask[1])
        total += cost(
            [grad if alone else None],
            [Span(grad.dtype, wide)],
            vector=max(numel(grad) - wide, 0),
            dtype=grad.dtype,
        )
    return total
