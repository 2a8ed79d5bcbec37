"""Reductions and scans: the operations of the definition, each element read once.

A sum of n numbers is n − 1 additions; a mean also divides. Over all rows of a tensor that is
inputs − outputs, or inputs. XLA's and TensorFlow's cost models count the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from opscope.core.perf.ops.elementwise import elementwise_cost
from opscope.core.perf.registry import CannotKnow, Cost, backward_of, op, variant, word_of, words
from opscope.core.perf.shapes import (
    as_ints,
    axes,
    broadcast,
    cost,
    dtype_param,
    floating,
    knows_params,
    need,
    numel,
    output,
    product,
    promote,
    real_steps,
    result,
    sizes,
    span,
    tensors,
)
from opscope.core.schema import INTEGERS, OpCall, ParamValue, TensorSpec

#: (FLOPs per input element, FLOPs per output element) of a reduction; −1: one fewer per output, 1: one more.
FORMS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        **dict.fromkeys(
            words(
                """
                sum nansum prod amax amin max min all any argmax argmin aminmax max_values
                count_nonzero
                """
            ),
            (1, -1),
        ),
        "mean": (1, 0),
        "nanmean": (1, 0),
        "var": (
            4,
            0,
        ),  # mean n (n − 1 additions, a division), subtract n, square n, add n − 1, divide
        "std": (4, 1),  # and the root
        "var_mean": (4, 0),
        "std_mean": (4, 1),
        "norm": (2, 0),  # square, add, root
        "linalg_norm": (2, 0),
        "linalg_vector_norm": (2, 0),
        "frobenius_norm": (2, 0),
        "linalg__powsum": (2, 0),
        "linalg_matrix_norm": (2, 0),
        "native_norm": (2, 0),
        "hash_tensor": (1, -1),
        "_is_all_true": (1, -1),
        "_is_any_true": (1, -1),
        "_aminmax": (1, -1),
        "special_logsumexp": (4, 0),
        "logsumexp": (4, 0),  # max, subtract, exp, add … log
        "median": (1, -1),
        "nanmedian": (1, -1),
        "mode": (1, -1),
        "dist": (3, 0),
        "trace": (0, 0),
    }
)
#: Dtypes whose sums and products are i64.
_COUNTED: Final = INTEGERS | {"bool"}
#: Forms whose ops have models of their own.
_ELSEWHERE: Final = ("dist", "trace", "linalg_norm", "linalg_matrix_norm")
_INDEX = frozenset(["argmax", "argmin", "count_nonzero"])


def reduced_shape(shape: tuple[int, ...], dim: ParamValue, keepdim: bool) -> tuple[int, ...]:
    """Return the shape after reducing the dimensions ``dim`` (all if it is None)."""
    gone = axes(as_ints(dim), len(shape))
    if keepdim:
        return tuple(1 if d in gone else n for d, n in enumerate(shape))
    return tuple(n for d, n in enumerate(shape) if d not in gone)


def dims_known(call: OpCall, rank: int) -> bool:
    """Whether an absent ``dim`` means all: the parameters are recorded, or there is at most one dimension."""
    return knows_params(call) or rank <= 1


@op(
    *(f"aten::{name}" for name in FORMS if name not in _ELSEWHERE),
    family="reduction",
    source="inputs − outputs operations: opscope.core.perf.ops.reduction.FORMS",
)
def reduction(call: OpCall) -> Cost:
    """FORMS' FLOPs per input element and per output element."""
    x = need(call, 0, "operand")
    word = word_of(call.name)
    operands = tensors(call)
    if word in ("max", "min") and len(operands) > 1 and output(call, 1) is None and not call.params:
        return elementwise_cost(call, operands[:2], 1)
    per_in, per_out = FORMS[word]
    shape = sizes(x)
    recorded = output(call)
    if recorded is None:
        dim = call.param("dim", call.param("axis"))
        if dim is None and not dims_known(call, len(shape)):
            if per_out == 0:  # the count does not depend on the shape of the result
                return cost(
                    [x],
                    None,
                    vector=per_in * product(shape),
                    dtype=x.dtype,
                    reason="the trace does not record which dimensions are reduced",
                )
            raise CannotKnow("the trace does not record which dimensions are reduced")
        keep = bool(call.param("keepdim", call.param("keepdims", False)))
        dtype = "bool" if word in ("all", "any") else "i64" if word in _INDEX else x.dtype
        if word in ("sum", "prod") and x.dtype in _COUNTED:
            dtype = "i64"
        dtype = dtype_param(call, dtype)
        recorded = TensorSpec(dtype, reduced_shape(shape, dim, keep))
    outs = numel(recorded)
    flops = max(per_in * product(shape) + per_out * outs, 0)
    writes = [recorded]
    if word in ("var_mean", "std_mean", "aminmax"):
        writes.append(output(call, 1) or recorded)
    elif word in ("max", "min", "median", "mode", "nanmedian") and (
        output(call, 1) is not None or call.param("dim") is not None or word == "mode"
    ):
        writes.append(output(call, 1) or TensorSpec("i64", recorded.shape))
    flops *= real_steps(word, x.dtype)
    return cost([x], writes, vector=flops, dtype=x.dtype)


@op("aten::dist", family="reduction", source="3 per element: subtract, square, add")
def dist(call: OpCall) -> Cost:
    """The norm of a difference."""
    a, b = need(call, 0, "operand"), need(call, 1, "operand")
    return cost([a, b], [TensorSpec(a.dtype, ())], vector=3 * numel(a), dtype=a.dtype)


@op("aten::equal", "aten::allclose", family="reduction", source="a comparison per element")
def equal(call: OpCall) -> Cost:
    """Compare all elements; write one result."""
    a, b = need(call, 0, "operand"), need(call, 1, "operand")
    return cost([a, b], [TensorSpec("bool", ())], vector=numel(a), dtype=a.dtype)


@op("aten::trace", family="reduction", source="n − 1 additions over the diagonal")
def trace(call: OpCall) -> Cost:
    """Read and add only the diagonal."""
    x = need(call, 0, "operand")
    side = min(sizes(x))
    out = TensorSpec(x.dtype, ())
    return cost([span(x, side)], [out], vector=max(side - 1, 0), dtype=x.dtype)


SCANS: Final = words(
    "cumsum cumprod cummax cummin logcumsumexp _logcumsumexp _cummax_helper _cummin_helper"
)


@op(
    *(f"aten::{name}" for name in SCANS),
    family="scan",
    source="n − 1 operations per row; logcumsumexp 4 (n − 1)",
    variants={"log_sum": "aten::logcumsumexp aten::_logcumsumexp"},
)
def scan(call: OpCall) -> Cost:
    """One operation per element except the first of its row (logcumsumexp: 4)."""
    x = need(call, 0, "operand")
    shape = sizes(x)
    count, rows = _scan(call, x)
    each = 4 if variant(call, "log_sum") else real_steps(word_of(call.name), x.dtype)
    kind = "i64" if x.dtype in _COUNTED and word_of(call.name) in ("cumsum", "cumprod") else x.dtype
    out = result(call, shape, dtype_param(call, kind))
    writes = [out]
    if word_of(call.name) in ("cummax", "cummin"):
        writes.append(output(call, 1) or TensorSpec("i64", shape))
    return cost([x], writes, vector=each * (count - rows), dtype=x.dtype)


def _scan(call: OpCall, x: TensorSpec) -> tuple[int, int]:
    """Return the elements of a scan and its rows. Raises CannotKnow where ``dim`` matters and is absent."""
    shape = sizes(x)
    dim = as_ints(call.param("dim"))
    if dim is None and len(shape) > 1:
        raise CannotKnow("the trace does not record the dimension of the scan")
    length = shape[axes(dim, len(shape))[0]] if shape else 1
    return product(shape), product(shape) // max(length, 1)


#: The backward pass multiplies by the forward's result, sums in reverse and divides by the input.
_NO_ZEROS: Final = "no element of the input is taken to be zero: zeros need two more scans"


@op(
    "aten::cumprod_backward",
    family="scan",
    source="3 per element less 1 per row: product n, reversed sum n − 1, quotient n",
)
def cumprod_backward(call: OpCall) -> Cost:
    """Σ_{j ≥ i} grad_j·y_j / x_i; operands are gradient, input, result. Rows of one element do nothing."""
    grad, x, y = (need(call, n, "operand") for n in range(3))
    count, rows = _scan(call, x)
    if count == rows:
        return Cost()
    return cost(
        [grad, x, y],
        [output(call) or grad],
        vector=3 * count - rows,
        dtype=grad.dtype,
        note=_NO_ZEROS,
    )


@op(
    "aten::cdist",
    "aten::_cdist_forward",
    "aten::pdist",
    "aten::_pdist_forward",
    "aten::_euclidean_dist",
    family="reduction",
    source="3 per element of each pair: subtract n, square n, add n − 1, root 1",
    variants={"own_pairs": "aten::pdist aten::_pdist_forward"},
)
def distances(call: OpCall) -> Cost:
    """Subtract, square and add per coordinate of every pair of rows."""
    a = need(call, 0, "operand")
    left = sizes(a)
    if variant(call, "own_pairs"):
        pairs = left[0] * (left[0] - 1) // 2
        out = TensorSpec(a.dtype, (pairs,))
        return cost([a], [out], vector=pairs * 3 * left[-1], dtype=a.dtype)
    right = sizes(need(call, 1, "operand"))
    shape = (*left[:-2], left[-2], right[-2])
    pairs = product(shape)
    out = output(call) or TensorSpec(a.dtype, shape)
    return cost(tensors(call)[:2], [out], vector=pairs * 3 * left[-1], dtype=a.dtype)


@op(
    "aten::pairwise_distance",
    "aten::cosine_similarity",
    family="reduction",
    source="pairwise_distance 4 per element (subtract, add ε, square, add … root); cosine_similarity 6 per "
    "element and 3 per row: two norms 4n, their product 2n − 1, each norm at least ε 2, product and "
    "quotient 2",
    variants={"cosine": "aten::cosine_similarity"},
)
def matching_rows(call: OpCall) -> Cost:
    """Compare each row with the row of the same place; the operands broadcast.

    The rows are along ``dim`` (1 by default) for a cosine, along the last dimension for a distance.
    """
    a, b = need(call, 0, "operand"), need(call, 1, "operand")
    shape = broadcast(sizes(a), sizes(b))
    if not variant(call, "cosine"):
        out = output(call) or TensorSpec(a.dtype, shape[:-1])
        return cost([a, b], [out], vector=4 * product(shape), dtype=promote([a, b]))
    dim = as_ints(call.param("dim"))
    if dim is None and len(shape) > 1:
        if not knows_params(call):
            raise CannotKnow("the trace does not record the dimension of the rows")
        dim = (1,)
    result_sizes = reduced_shape(shape, dim, False)
    flops = 6 * product(shape) + 3 * product(result_sizes)
    return cost(
        [a, b],
        [output(call) or TensorSpec(promote([a, b]), result_sizes)],
        vector=flops,
        dtype=promote([a, b]),
    )


@backward_of("aten::sum", "aten::mean")
def reduction_backward(call: OpCall) -> tuple[Cost, Cost]:
    """Spread the gradient over the input; a mean's is also divided."""
    x = need(call, 0, "operand")
    flops = numel(x) if word_of(call.name) == "mean" else 0
    return cost([], [x], vector=flops, dtype=floating(x.dtype)), Cost()


#: Reversed logcumsumexp (4) of the positive and of the negative part of log|grad|: logarithm of the
#: magnitude 2, a comparison, − result, + input and exp for each part 8, the difference 1; and the scans' 8.
LOG_SUM_BACK: Final = 2 + 2 * 4 + 1 + 2 * 4


@backward_of(
    *(f"aten::{name}" for name in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"))
)
def scan_gradient(call: OpCall) -> tuple[Cost, Cost]:
    """A reversed sum (cumsum), as the backward op (cumprod), a scatter (cummax, cummin), LOG_SUM_BACK."""
    x, word = need(call, 0, "operand"), word_of(call.name)
    grad = TensorSpec(dtype_param(call, floating(x.dtype)), x.shape)
    if word in ("cummax", "cummin"):
        places = TensorSpec("i64", x.shape)
        return cost([grad, places], [x], vector=numel(x), dtype=grad.dtype), Cost()
    count, rows = _scan(call, x)
    if count == rows:  # the gradient itself
        return Cost(), Cost()
    if word == "cumsum":
        return cost([grad], [x], vector=count - rows, dtype=grad.dtype), Cost()
    operands = [grad, x, grad]  # the forward's result is as large as the gradient
    if word == "cumprod":
        flops = 3 * count - rows
        return cost(operands, [x], vector=flops, dtype=grad.dtype, note=_NO_ZEROS), Cost()
    return cost(operands, [x], vector=LOG_SUM_BACK * count - 8 * rows, dtype=grad.dtype), Cost()


@op("aten::sum_to_size", family="reduction", source="inputs − outputs additions")
def sum_to_size(call: OpCall) -> Cost:
    """Sum the dimensions that a tensor of that size would broadcast over; an equal size does nothing."""
    x, size = need(call, 0, "operand"), as_ints(call.param("size"))
    out = output(call)
    if out is None:
        if size is None:
            raise CannotKnow("the trace does not record the size of the result")
        out = TensorSpec(x.dtype, size)
    if numel(out) == numel(x):
        return Cost()
    return cost([x], [out], vector=max(numel(x) - numel(out), 0), dtype=x.dtype)


@op("aten::_nested_tensor_from_mask_left_aligned", "c10d::check_for_nan", family="reduction",
    source="a comparison per element")  # fmt: skip
def looked_through(call: OpCall) -> Cost:
    """Compare every element once, with its neighbour or with itself; write one result."""
    x = need(call, 0, "operand")
    return cost([x], [TensorSpec("bool", ())], vector=numel(x), dtype=x.dtype)


@op(
    "_moe_C::moe_sum",
    "sgl_kernel::moe_sum",
    family="reduction",
    source="k − 1 additions per element",
)
def moe_sum(call: OpCall) -> Cost:
    """Add the k experts' results of each token."""
    x, out = need(call, 0, "input"), need(call, 1, "output")
    return cost([x], [out], vector=max(numel(x) - numel(out), 0), dtype=x.dtype)
