"""Cost models of HLO instructions, named ``hlo::<opcode>``, with XLA's counts.

An elementwise result is one FLOP. XLA's HloCostAnalysis counts elementary functions separately as
"transcendentals"; here they are FLOPs like the others. For a convolution, XLA counts multiply-adds only at
valid positions; this model counts every weight at every position, as ``perf.ops.conv`` does for all
frameworks. Neither counts the holes of a base dilation (in gradients of strided and grouped convolutions).
Dimension numbers are parameters in the notation of HLO text.
"""

from __future__ import annotations

import re
from math import ceil, log2

from opscope.core.perf.ops.fft import transform_flops
from opscope.core.perf.registry import CannotKnow, Cost, op, variant, words
from opscope.core.perf.shapes import (
    as_ints,
    broadcast,
    cost,
    distinct_tensors,
    need,
    need_output,
    numel,
    output,
    outputs,
    product,
    promote,
    real_steps,
    result,
    sizes,
    span,
    tensors,
)
from opscope.core.schema import OpCall

_ELEMENTWISE = words(
    """
    add subtract multiply divide remainder maximum minimum power and or xor not negate abs sign
    floor ceil round-nearest-afz round-nearest-even sqrt rsqrt cbrt exponential
    exponential-minus-one log log-plus-one logistic tanh sine cosine tan erf atan2 compare select
    clamp shift-left shift-right-arithmetic shift-right-logical is-finite real imag complex
    popcnt count-leading-zeros stochastic-convert map acos acosh asin asinh atanh cosh sinh mulhi
    """
)


@op(
    *(f"hlo::{name}" for name in _ELEMENTWISE),
    family="elementwise",
    source="1 per element (XLA)",
    variants={"select": "hlo::select"},
)
def elementwise(call: OpCall) -> Cost:
    """One FLOP for each element of the result."""
    operands = tensors(call)
    need(call, 0, "operand")
    out = result(call, broadcast(*map(sizes, operands)), promote(operands))
    each = 0 if call.name in ("hlo::real", "hlo::imag", "hlo::complex") else 1
    dtype = operands[-1].dtype if variant(call, "select") else operands[0].dtype
    each *= real_steps(call.name.removeprefix("hlo::"), dtype)
    return cost(distinct_tensors(call), [out], vector=each * numel(out), dtype=dtype)


@op(
    "hlo::dot",
    "hlo::ragged-dot",
    "hlo::scaled-dot",
    family="gemm",
    source="2·result·contracted (XLA)",
)
def dot(call: OpCall) -> Cost:
    """2 FLOPs for each element of the result and each contracted position."""
    a, b = need(call, 0, "lhs"), need(call, 1, "rhs")
    contracted = as_ints(call.param("lhs_contracting_dims"))
    other = as_ints(call.param("rhs_contracting_dims"))
    if contracted is None:
        raise CannotKnow("the contracting dimensions are not recorded")
    left, right = sizes(a), sizes(b)
    k = product(left[d] for d in contracted)
    out = output(call)
    if out is not None:
        count = numel(out)
    else:
        batch = as_ints(call.param("lhs_batch_dims")) or ()
        if other is None:
            raise CannotKnow("the contracting dimensions are not recorded")
        shared = product(left[d] for d in batch)
        count = product(left) // max(k, 1) * (product(right) // max(k * shared, 1))
    writes = [out] if out is not None else [span(a, count)]
    return cost(distinct_tensors(call), writes, matrix=2 * count * k, dtype=promote([a, b]))


#: ``dim_labels`` of a convolution: the dimensions of its operands and its result.
LABELS = re.compile(r"\w+_(\w+)->\w+")


@op("hlo::convolution", family="conv", source="2·result·(weights per output channel), padding included; "
    "of a dilated input 2·input·(weights per input channel)")  # fmt: skip
def convolution(call: OpCall) -> Cost:
    """2 FLOPs for each result element and each weight of its output feature (given by ``dim_labels``)."""
    x, w = need(call, 0, "lhs"), need(call, 1, "rhs")
    labels = LABELS.match(str(call.param("dim_labels", "")))
    out = output(call)
    if labels is None or out is None:
        raise CannotKnow("the dimension numbers or the result are not recorded")
    weight = sizes(w)
    kernel = labels.group(1)
    if "o" not in kernel or len(kernel) != len(weight):
        raise CannotKnow("the dimension labels do not fit the shape of the weights")
    each = product(weight) // max(weight[kernel.index("o")], 1)
    groups = as_ints(call.param("batch_group_count"))
    flops = 2 * numel(out) * each // (groups[0] if groups else 1)
    base = as_ints(call.param("base_dilation")) or ()
    if any(gap > 1 for gap in base):
        every, real = _taps(labels.group(0), sizes(x), weight, sizes(out), base)
        flops = flops // max(every, 1) * real
    return cost(distinct_tensors(call), [out], matrix=flops, dtype=promote([x, w]))


def _taps(
    labels: str, x: tuple[int, ...], w: tuple[int, ...], out: tuple[int, ...], base: tuple[int, ...]
) -> tuple[int, int]:
    """Count pairs of a result and a weight per channel: all, and those that a base dilation leaves.

    A dilated dimension is a transposed convolution's, which uses each weight for each input element,
    including those that are cropped. Or it represents groups (XLA's ConvolutionGroupConverter): then input,
    window and dilation are the number of groups, and each result uses the weights of its own group.
    """
    data, _, rest = labels.partition("_")
    kernel, _, results = rest.partition("->")
    if len(data) != len(x) or len(results) != len(out):
        raise CannotKnow("the dimension labels do not fit the shapes of the operands")
    spatial = sorted(letter for letter in data if letter.isdigit())
    if len(base) != len(spatial):
        raise CannotKnow("the window's parameters do not fit its dimensions")
    every = real = 1
    for letter, gap in zip(spatial, base, strict=True):
        size, window = x[data.index(letter)], w[kernel.index(letter)]
        extent = out[results.index(letter)]
        every *= extent * window
        real *= extent * window if gap < 2 else extent if size == window == gap else size * window
    return every, real


@op("hlo::reduce", family="reduction", source="inputs − outputs (XLA)")
def reduce(call: OpCall) -> Cost:
    """One operation of the reducer for each input element except the first of each result."""
    x = need(call, 0, "operand")
    out = need_output(call, "the result is not recorded")
    each = as_ints(call.param("reducer_flops"))
    flops = max(numel(x) - numel(out), 0) * (each[0] if each else 1)
    return cost([x, *tensors(call)[1:]], outputs(call) or [], vector=flops, dtype=x.dtype)


@op(
    "hlo::reduce-window",
    "hlo::select-and-scatter",
    family="pooling",
    source="k − 1 per result (XLA)",
    variants={"scatter": "hlo::select-and-scatter"},
)
def reduce_window(call: OpCall) -> Cost:
    """k − 1 operations for each result; select-and-scatter also adds each source element."""
    x = need(call, 0, "operand")
    size = as_ints(call.param("window", call.param("size")))
    out = output(call)
    if size is None or out is None:
        raise CannotKnow("the size of the window or the result is not recorded")
    windows = tensors(call)[1] if variant(call, "scatter") and len(tensors(call)) > 1 else out
    flops = (product(size) - 1) * numel(windows)
    if variant(call, "scatter"):
        flops += numel(windows)
    return cost(distinct_tensors(call), [out], vector=flops, dtype=x.dtype)


@op(*(f"hlo::{name}" for name in words(
        "parameter constant bitcast tuple get-tuple-element after-all opt-barrier "
        "partition-id replica-id add-dependency get-dimension-size domain bitcast-convert "
        "while conditional call token async-start async-update async-done infeed outfeed "
        "optimization-barrier set-dimension-size rng-get-and-update-state")),
    family="view", view=True, source="moves no data itself")  # fmt: skip
def nothing(call: OpCall) -> Cost:
    """A name, or a call of instructions that are counted on their own."""
    return Cost()


@op(*(f"hlo::{name}" for name in words(
        "copy convert transpose reshape broadcast concatenate pad reverse slice dynamic-slice "
        "copy-start copy-done iota reduce-precision dynamic-reshape")),
    family="copy", source="result written, the same amount read",
    variants={
        "done": "hlo::copy-done",
        "slice": "hlo::slice hlo::dynamic-slice",
        "iota": "hlo::iota",
    })  # fmt: skip
def copy(call: OpCall) -> Cost:
    """The copied elements are read and written once."""
    out = output(call)
    if out is None or variant(call, "done"):
        return cost(None, None, reason="the result is not recorded") if out is None else Cost()
    operands = distinct_tensors(call)
    if variant(call, "slice") and operands:
        return cost([span(operands[0], numel(out))], [out])
    return cost(operands if not variant(call, "iota") else [], [out])


@op("hlo::dynamic-update-slice", "hlo::gather", "hlo::scatter", family="index",
    source="the elements touched (XLA)",
    variants={
        "gather": "hlo::gather",
        "dynamic": "hlo::dynamic-update-slice",
        "scatter": "hlo::scatter",
    })  # fmt: skip
def touch(call: OpCall) -> Cost:
    """An update is read and written in place. A gather reads as many elements as it writes. A scatter adds
    once per element."""
    operands = tensors(call)
    x = need(call, 0, "operand")
    out = output(call)
    if variant(call, "gather"):
        if out is None:
            raise CannotKnow("the result is not recorded")
        return cost([span(x, min(numel(out), numel(x))), *operands[1:2]], [out])
    update = operands[1] if variant(call, "dynamic") else operands[-1]
    added = numel(update) if variant(call, "scatter") else 0
    return cost([update], [span(x, numel(update))], vector=added, dtype=x.dtype)


@op("hlo::batch-norm-training", "hlo::batch-norm-inference", "hlo::batch-norm-grad", family="norm",
    source="training 7 per element, evaluation 4, gradient 10 (as aten::native_batch_norm)")  # fmt: skip
def batch_norm(call: OpCall) -> Cost:
    """Statistics 4, normalise 1, affine 2; in evaluation: subtract, multiply, affine."""
    x = need(call, 0, "operand")
    each = {"training": 7, "inference": 4, "grad": 10}[call.name.rsplit("-", 1)[1]]
    writes = outputs(call) or [x]
    return cost(distinct_tensors(call), writes, vector=each * numel(x), dtype=x.dtype)


@op("hlo::topk", family="sort", source="1 comparison per element, k·⌈log2 k⌉ per row")
def topk(call: OpCall) -> Cost:
    """One pass over each row, then a sort of the k elements found."""
    x = need(call, 0, "operand")
    out = need_output(call, "the result is not recorded")
    k = sizes(out)[-1] if sizes(out) else 1
    flops = numel(x) + (numel(out) * ceil(log2(k)) if k > 1 else 0)
    return cost([x], outputs(call) or [], vector=flops, dtype=x.dtype)


@op("hlo::scan", family="scan", source="1 operation per element except the first of its row")
def scan(call: OpCall) -> Cost:
    """A running reduction along one dimension."""
    x = need(call, 0, "operand")
    shape = sizes(x)
    dims = as_ints(call.param("dimensions"))
    if not dims or not shape:
        raise CannotKnow("the dimension of the scan is not recorded")
    rows = product(shape) // max(shape[dims[0]], 1)
    return cost([x], outputs(call) or [x], vector=product(shape) - rows, dtype=x.dtype)


@op("hlo::sort", family="sort", source="n·⌈log2 n⌉ comparisons per row (XLA)")
def sort(call: OpCall) -> Cost:
    """The comparisons of a merge sort along the sorted dimension."""
    x = need(call, 0, "operand")
    shape = sizes(x)
    dims = as_ints(call.param("dimensions"))
    n = shape[dims[0]] if dims and shape else product(shape)
    flops = product(shape) * ceil(log2(n)) if n > 1 else 0
    operands = distinct_tensors(call)
    return cost(operands, outputs(call) or operands, vector=flops, dtype=x.dtype)


@op("hlo::rng", "hlo::rng-bit-generator", family="random", source="no FLOPs; the result is written")
def rng(call: OpCall) -> Cost:
    """The bits are written; the generator's integer operations are not FLOPs."""
    out = outputs(call)
    return cost([], out, reason="the result is not recorded")


@op(
    "hlo::cholesky",
    "hlo::triangular-solve",
    family="linalg",
    source="n³/3; n²·k",
    variants={"cholesky": "hlo::cholesky"},
)
def solve(call: OpCall) -> Cost:
    """The leading terms of LAPACK's operation counts."""
    a = need(call, 0, "matrix")
    shape = sizes(a)
    n, batch = shape[-1], product(shape[:-2])
    if variant(call, "cholesky"):
        return cost([a], [a], matrix=batch * (n**3 // 3), dtype=a.dtype)
    b = need(call, 1, "right-hand side")
    k = numel(b) // max(batch * n, 1)
    return cost([a, b], [b], matrix=batch * n * n * k, dtype=a.dtype)


@op("hlo::fft", family="fft", source="5·N·log2 N per complex transform, half for a real one")
def fft(call: OpCall) -> Cost:
    """A transform over the last dimensions, as many as ``fft_length`` has entries."""
    x = need(call, 0, "operand")
    length = as_ints(call.param("fft_length"))
    if length is None:
        raise CannotKnow("the length of the transform is not recorded")
    kind = str(call.param("fft_type", "FFT"))
    points = product(length)
    points_in_all = max(numel(x), numel(output(call) or x))
    flops = transform_flops(points_in_all // max(points, 1), points, "R" in kind.replace("FFT", ""))
    return cost([x], [output(call) or x], vector=flops, dtype=x.dtype)
