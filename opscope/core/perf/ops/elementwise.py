"""Elementwise ops with broadcasting and type promotion: a fixed number of FLOPs per element.

An addition, multiplication, division, comparison, selection, root or one elementary function (exp,
log, sin, tanh, erf …) is one FLOP; a function made of several counts their number, as listed. Bytes:
each operand once (broadcast dimensions once), the result once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from opscope.core.perf.registry import (
    CannotKnow,
    Cost,
    in_place,
    lookup,
    op,
    variant,
    with_forward,
    word_of,
    words,
)
from opscope.core.perf.shapes import (
    NO_SHAPES,
    Part,
    broadcast,
    cost,
    distinct_tensors,
    floating,
    lists,
    need,
    numel,
    output,
    outputs,
    product,
    promote,
    real_steps,
    result,
    sizes,
    tensors,
)
from opscope.core.schema import FLOATS, INTEGERS, OpCall, TensorSpec

#: FLOPs per element of ops with one operand.
UNARY: Final[Mapping[str, int]] = MappingProxyType(
    {
        **dict.fromkeys(
            words(
                """
                abs absolute neg negative sign sgn signbit ceil floor round trunc fix
                frac sqrt rsqrt reciprocal square exp exp2 expm1 log log2 log10 log1p sin cos
                tan asin arcsin acos arccos atan arctan sinh cosh tanh asinh arcsinh acosh
                arccosh atanh arctanh erf erfc erfinv lgamma digamma angle bitwise_not
                logical_not isnan isinf isfinite isposinf isneginf isreal conj_physical
                nan_to_num special_i0 special_i0e special_i1 special_i1e i0 special_ndtri
                special_log_ndtr special_erfcx mvlgamma special_entr special_bessel_j0
                special_bessel_j1 special_ndtr polygamma _conj_physical frexp special_airy_ai
                special_bessel_y0 special_bessel_y1 special_modified_bessel_i0
                special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1
                special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1
                special_spherical_bessel_j0 special_digamma special_psi special_gammaln
                special_multigammaln special_polygamma special_erf special_erfc special_erfinv
                special_exp2 special_expm1 special_log1p special_round
                """
            ),
            1,
        ),
        "deg2rad": 1,
        "rad2deg": 1,
        "logit": 3,
        "sinc": 3,
        "special_logit": 3,
        "special_sinc": 3,
        "special_expit": 4,
        "nan_to_num": 3,
        "isreal": 1,
    }
)
#: FLOPs per element of the result, of ops with two operands.
BINARY: Final[Mapping[str, int]] = MappingProxyType(
    {
        **dict.fromkeys(
            words(
                """
                add sub subtract mul multiply div divide true_divide rsub floor_divide remainder
                fmod pow float_power maximum minimum fmax fmin atan2 arctan2 hypot copysign
                nextafter ldexp bitwise_and bitwise_or bitwise_xor bitwise_left_shift
                bitwise_right_shift logical_and logical_or logical_xor gcd lcm heaviside igamma
                igammac special_zeta __and__ __or__ __xor__ __lshift__ __rshift__ __iand__
                __ior__ __ixor__ __ilshift__ __irshift__ special_gammainc special_gammaincc
                special_chebyshev_polynomial_t special_chebyshev_polynomial_u
                special_chebyshev_polynomial_v special_chebyshev_polynomial_w
                special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
                special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w
                special_hermite_polynomial_h special_hermite_polynomial_he
                special_laguerre_polynomial_l special_legendre_polynomial_p
                """
            ),
            1,
        ),
        **dict.fromkeys(
            ["eq", "ne", "lt", "le", "gt", "ge", "not_equal", "less", "greater", "isclose"], 1
        ),
        "less_equal": 1,
        "greater_equal": 1,
        "hypot": 4,
        "_add_relu": 2,
        "xlogy": 2,
        "special_xlogy": 2,
        "special_xlog1py": 3,
        "logaddexp": 5,
        "logaddexp2": 5,
        "polar": 4,
        "complex": 0,
    }
)
#: FLOPs per element of the result, of ops with three operands.
TERNARY: Final[Mapping[str, int]] = MappingProxyType(
    {"addcmul": 3, "addcdiv": 3, "lerp": 3, "where": 1, "masked_fill": 1}
)
#: dtypes of the tensors that PyTorch makes of Python's numbers.
_NUMBERS: Final = ("f64", "i64", "bool", "c128")
_BOOLEAN: Final = frozenset(
    words(
        """
        eq ne lt le gt ge not_equal less less_equal greater greater_equal isclose logical_and
        logical_or logical_xor logical_not isnan isinf isfinite isposinf isneginf isreal signbit
        """
    )
)
_FLOATING: Final = frozenset(
    words(
        """
        sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan
        sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma digamma logit sinc div
        true_divide divide atan2 deg2rad rad2deg
        """
    )
)


def elementwise_cost(
    call: OpCall, operands: list[TensorSpec], per_element: int, dtype: str | None = None
) -> Cost:
    """Return the cost of ``per_element`` FLOPs per element of the broadcast operands' result.

    Raises CannotKnow if a shape is missing or the operands do not broadcast.
    """
    recorded = output(call)
    numbers = [recorded is None and _is_number(one, operands) for one in operands]
    kind = promote(
        [
            one if number else replace(one, shape=one.shape or (1,))
            for one, number in zip(operands, numbers, strict=True)
        ]
        if any(numbers)
        else operands
    )
    shape = sizes(recorded) if recorded is not None else broadcast(*map(sizes, operands))
    if recorded is None and in_place(call.name):
        shape = sizes(operands[0])
    reads: list[Part] = []
    for operand, number in zip(operands, numbers, strict=True):
        if number:
            continue
        if operand not in reads or len(tensors(call)) == _distinct_count(call):
            reads.append(operand)
    written = [result(call, shape, dtype or kind)]
    kept = outputs(call)
    if kept is not None and len(kept) > 1:
        written = kept
    elif kept is None and word_of(call.name) == "frexp":
        written.append(TensorSpec("i32", shape))  # the exponents
    steps = per_element * real_steps(word_of(call.name), kind)
    return cost(reads, written, vector=steps * product(shape), dtype=kind)


def _is_number(operand: TensorSpec, operands: list[TensorSpec]) -> bool:
    """Whether a trace's operand is a number of the program (``x + 1.0``), which PyTorch writes as a tensor
    without dimensions: f64, i64, bool or c128, beside a tensor with dimensions or of another dtype. Nothing
    is read for it."""
    wrapped = not operand.shape and operand.dtype in _NUMBERS
    return wrapped and any(one.shape or one.dtype not in _NUMBERS for one in operands)


def _distinct_count(call: OpCall) -> int:
    return len(distinct_tensors(call))


def _result_dtype(word: str, operands: list[TensorSpec]) -> str | None:
    if word in _BOOLEAN:
        return "bool"
    if word in _FLOATING:
        return floating(promote(operands))
    if word in ("abs", "angle"):  # for a complex number, both are real
        return {"c128": "f64", "c64": "f32", "c32": "f16"}.get(operands[0].dtype)
    if word in ("complex", "polar"):
        return {"f64": "c128", "f32": "c64", "f16": "c32"}.get(promote(operands))
    return None


@op(
    *(f"aten::{name}" for name in UNARY),
    family="elementwise",
    source="FLOPs per element: opscope.core.perf.ops.elementwise.UNARY",
)
def unary(call: OpCall) -> Cost:
    """UNARY's FLOPs per element (1 for an elementary function)."""
    x = need(call, 0, "operand")
    word = word_of(call.name)
    return elementwise_cost(call, [x], UNARY.get(word, 1), _result_dtype(word, [x]))


@op(
    *(f"aten::{name}" for name in BINARY),
    family="elementwise",
    source="FLOPs per element: opscope.core.perf.ops.elementwise.BINARY; one more if alpha ≠ 1",
)
def binary(call: OpCall) -> Cost:
    """BINARY's FLOPs per element of the broadcast result."""
    word = word_of(call.name)
    operands = [need(call, 0, "operand"), *tensors(call)[1:2]]
    each = BINARY.get(word, 1)
    if word in ("add", "sub", "rsub") and call.param("alpha", 1) not in (1, None):
        each += 1
    return elementwise_cost(call, operands, each, _result_dtype(word, operands))


@op(
    *(f"aten::{name}" for name in TERNARY),
    family="elementwise",
    source="FLOPs per element: opscope.core.perf.ops.elementwise.TERNARY",
)
def ternary(call: OpCall) -> Cost:
    """addcmul and addcdiv: multiply or divide, scale, add; lerp: subtract, multiply, add; a selection 1."""
    word = word_of(call.name)
    operands = [need(call, 0, "operand"), *tensors(call)[1:3]]
    each = TERNARY.get(word, 3)
    if word.startswith("addc") and call.param("value", 1) in (1, None):
        each -= 1
    if word == "where":
        if len(operands) == 1:
            raise CannotKnow("how many elements are true is data that no trace records")
        recorded = output(call)
        shape = sizes(recorded) if recorded is not None else broadcast(*map(sizes, operands))
        kind = promote(operands[1:])
        out = recorded or TensorSpec(kind, shape)
        return cost(operands, [out], vector=product(shape), dtype=kind)
    if word == "masked_fill":
        x, mask = operands[0], operands[1] if len(operands) > 1 else None
        shape = broadcast(sizes(x), sizes(mask)) if mask is not None else sizes(x)
        out = result(call, shape, x.dtype)
        return cost([x, mask, *operands[2:]], [out], vector=numel(out), dtype=x.dtype)
    return elementwise_cost(call, operands, each)


@op(
    "aten::clamp",
    "aten::clip",
    "aten::clamp_min",
    "aten::clamp_max",
    family="elementwise",
    source="one comparison per element and bound",
    variants={"one_bound": "aten::clamp_min aten::clamp_max"},
)
def clamp(call: OpCall) -> Cost:
    """One comparison per element and bound."""
    x = need(call, 0, "operand")
    bounds = 1 if variant(call, "one_bound") else 2
    if bounds == 1 and len(tensors(call)) > 1:  # the bound is a tensor
        return elementwise_cost(call, tensors(call)[:2], 1)
    if bounds == 2 and len(tensors(call)) > 1:  # the bounds are tensors
        return elementwise_cost(call, tensors(call)[:3], len(tensors(call)[1:3]))
    if bounds == 2 and call.params:
        given = [key for key in ("min", "max") if call.param(key) is not None]
        bounds = len(given) or len(tensors(call)) - 1 or 2
    return elementwise_cost(call, [x], bounds)


# ------------------------------------------------------------------------------- foreach


def _foreach_lists(call: OpCall) -> list[list[TensorSpec]]:
    tensor_lists = [tensor_list for tensor_list in lists(call) if tensor_list]
    if not tensor_lists:
        raise CannotKnow("the trace has no shapes for the list of tensors")
    return tensor_lists


_FOREACH: Final[Mapping[str, int]] = MappingProxyType(
    {
        **{
            name: UNARY[name]
            for name in words(
                """
                abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10
                log1p log2 neg reciprocal round rsqrt sign sin sinh sqrt tan tanh trunc
                """
            )
        },
        **dict.fromkeys(
            ["add", "sub", "mul", "div", "pow", "maximum", "minimum", "clamp_min", "clamp_max"], 1
        ),
        "addcmul": 3,
        "addcdiv": 3,
        "lerp": 3,
        "sigmoid": 4,
        "copy": 0,
        "zero": 0,
    }
)


@op(
    *(f"aten::_foreach_{name}" for name in _FOREACH),
    family="elementwise",
    source="as the op without foreach, over every tensor of the lists",
)
def foreach(call: OpCall) -> Cost:
    """The op's FLOPs per element, over all tensors of the first list."""
    word = word_of(call.name).removeprefix("_foreach_")
    tensor_lists = _foreach_lists(call)
    each = _FOREACH[word]
    if word in ("add", "sub") and call.param("alpha", 1) not in (1, None):
        each += 1
    if word.startswith("addc") and call.param("value") == 1:
        each -= 1
    count = sum(numel(t) for t in tensor_lists[0])
    reads: list[Part] = [
        t
        for tensor_list in tensor_lists[: 3 if word.startswith("addc") or word == "lerp" else 2]
        for t in tensor_list
    ]
    if word == "zero":
        reads = []
    elif word == "copy" and len(tensor_lists) > 1:
        reads = [*tensor_lists[1]]
    dtype = promote(tensor_lists[0])
    return cost(reads, tensor_lists[0], vector=each * real_steps(word, dtype) * count, dtype=dtype)


@op("aten::_foreach_norm", family="reduction", source="2 per element: square and add")
def foreach_norm(call: OpCall) -> Cost:
    """A square and an addition per element; the root per tensor is not counted."""
    operands = _foreach_lists(call)[0]
    count = sum(numel(t) for t in operands)
    outs = [TensorSpec(t.dtype, ()) for t in operands]
    return cost(operands, outs, vector=2 * count, dtype=promote(operands))


@op("aten::_amp_update_scale", family="optimizer", source="a product and a comparison")
def amp_update_scale(call: OpCall) -> Cost:
    """Increase or decrease the gradient scale, one number."""
    scale = need(call, 0, "scale")
    return cost(distinct_tensors(call), [scale], vector=2, dtype=scale.dtype)


@op(
    "aten::_amp_foreach_non_finite_check_and_unscale",
    family="optimizer",
    source="a check and a multiplication per element",
)
def amp_unscale(call: OpCall) -> Cost:
    """A finiteness check and a multiplication per gradient element, in place."""
    operands = _foreach_lists(call)[0]
    count = sum(numel(t) for t in operands)
    return cost(operands, operands, vector=2 * count, dtype=promote(operands))


@op(
    "_C::rotary_embedding",
    "_C::batched_rotary_embedding",
    "vllm::rotary_embedding",
    "sgl_kernel::apply_rope_pos_ids_cos_sin_cache",
    "flash_attn::apply_rotary",
    "quack::rotary",
    family="elementwise",
    source="3 per element: a pair takes four products and two sums",
)
def rotary(call: OpCall) -> Cost:
    """Rotate each pair of elements of a query or key by its angle."""
    operands = [t for t in tensors(call) if t.dtype in FLOATS]
    if not operands:
        raise CannotKnow(NO_SHAPES)
    turned = operands[:2] if len(operands) > 2 else operands[:1]
    flops = 3 * sum(map(numel, turned))
    positions = [t for t in tensors(call) if t.dtype in INTEGERS]
    return cost([*turned, *positions], turned, vector=flops, dtype=turned[0].dtype)


#: Products and quotients: their gradient is multiplied or divided by one of their factors.
_SCALED: Final = frozenset({"aten::mul", "aten::div", "aten::true_divide"})


@with_forward("aten::mul", "aten::div")
def scaled_gradient(_: OpCall, forward: OpCall) -> Cost:
    """A product's gradient, with its size from the forward: the gradient times the other factor.

    Only of one tensor and a number, or of two tensors of one size, do both factors give the same cost.
    """
    entry = lookup(forward.name)
    factors = tensors(forward)
    if entry is None or entry.name not in _SCALED or not 1 <= len(factors) <= 2:
        raise CannotKnow(
            f"the op is not the gradient of a product, but runs inside the gradient of {forward.name}"
        )
    x = factors[0]
    if any(other.shape != x.shape or other.dtype != x.dtype for other in factors[1:]):
        raise CannotKnow(
            "which of the product's factors the gradient is multiplied by is not recorded"
        )
    return cost([x, *factors[1:]], [x], vector=numel(x), dtype=x.dtype)
