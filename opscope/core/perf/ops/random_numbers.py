"""Random numbers and dropout: the bytes written, and the arithmetic of the distribution.

The generator's integer arithmetic (Philox) counts no FLOPs. The mapping of a draw to the
distribution counts: uniform 2 (scale, shift), normal 5 (Box–Muller), dropout 2 (compare, scale).
"""

from __future__ import annotations

from typing import Final

from opscope.core.perf.registry import (
    CannotKnow,
    Cost,
    backward_of,
    in_place,
    op,
    variant,
    with_forward,
    word_of,
)
from opscope.core.perf.shapes import (
    NO_OUTPUTS,
    NO_SIZE,
    Part,
    Span,
    broadcast,
    cost,
    dtype_param,
    int_param,
    ints_param,
    need,
    numel,
    output,
    outputs,
    sizes,
    span,
    tensors,
)
from opscope.core.schema import OpCall, TensorSpec

DRAWS = {
    "uniform": 2,
    "rand": 2,
    "rand_like": 2,
    "normal": 5,
    "randn": 5,
    "randn_like": 5,
    "bernoulli": 1,
    "random": 1,
    "randint": 1,
    "randint_like": 1,
    "exponential": 3,
    "geometric": 3,
    "cauchy": 4,
    "log_normal": 6,
    "poisson": 5,
    "_standard_gamma": 10,
    "_sample_dirichlet": 10,
    "_standard_gamma_grad": 10,
    "_dirichlet_grad": 10,
    "binomial": 5,
    "_philox_normal": 5,
    "_philox_uniform": 2,
    "normal_functional": 5,
}


#: Ops whose tensors are parameters of the distribution, not storage for the result.
_FROM = (
    "bernoulli", "poisson", "binomial", "normal", "_standard_gamma", "_sample_dirichlet",
    "_standard_gamma_grad", "_dirichlet_grad",
)  # fmt: skip


@op(
    *(f"aten::{name}" for name in DRAWS),
    family="random",
    source="FLOPs per element: opscope.core.perf.ops.random_numbers.DRAWS",
    variants={"like": "*_like*", "philox": "aten::_philox_normal aten::_philox_uniform"},
)
def draw(call: OpCall) -> Cost:
    """DRAWS' FLOPs per number drawn."""
    out = output(call)
    size = ints_param(call, "size")
    operands = tensors(call)
    if out is None:
        if operands:
            shape = broadcast(*map(sizes, operands[:2])) if len(operands) > 1 else operands[0].shape
            if in_place(call.name) or variant(call, "like") or variant(call, "philox"):
                shape = operands[0].shape
            out = TensorSpec(dtype_param(call, operands[0].dtype), tuple(shape))
        elif size is not None:
            out = TensorSpec(dtype_param(call, "?"), size)
        else:
            raise CannotKnow(NO_SIZE)
    word = word_of(call.name)
    reads = operands if word in _FROM else []
    if in_place(call.name):
        reads = reads[1:]
    return cost(reads, [out], vector=DRAWS[word] * numel(out), dtype=out.dtype)


@op("aten::_philox_key_split", "aten::_philox_key_fold_in", family="random",
    source="the generator's integer arithmetic, no FLOPs",
    variants={"split": "aten::_philox_key_split"})  # fmt: skip
def split_key(call: OpCall) -> Cost:
    """Make one or more keys from a key."""
    key = need(call, 0, "key")
    count = int_param(call, "num_splits", 1) if variant(call, "split") else 1
    return cost([key], [output(call) or Span(key.dtype, count * numel(key))])


#: Direction numbers per dimension in PyTorch's Sobol engine (torch.quasirandom.SobolEngine.MAXBIT).
SOBOL_BITS: Final = 30


@op("aten::_sobol_engine_draw", "aten::_sobol_engine_ff", family="random",
    source="Bratley and Fox, Algorithm 659: an exclusive-or per point and dimension, and a scaling "
           "of each number drawn",
    variants={"draw": "aten::_sobol_engine_draw"})  # fmt: skip
def sobol(call: OpCall) -> Cost:
    """A point is the previous one, xor one column of direction numbers; skipped points are not written."""
    quasi, state = need(call, 0, "state"), need(call, 1, "direction numbers")
    points = int_param(call, "n")
    count = points * int_param(call, "dimension", numel(quasi))
    # a point's column is its lowest zero bit: n successive points use at most log2(n) + 1 columns
    columns = min(points.bit_length(), SOBOL_BITS) * numel(quasi)
    reads: list[Part] = [quasi, span(state, min(columns, numel(state)))]
    if not variant(call, "draw"):
        return cost(reads, [quasi], vector=count, dtype=quasi.dtype)
    out = output(call) or TensorSpec(dtype_param(call, "f32"), (count,))
    return cost(reads, [out, quasi], vector=2 * count, dtype=out.dtype)


@op("aten::_sobol_engine_scramble", family="random",
    source="Owen's scrambling: a triangular binary matrix by every direction number, 2·30³ per "
           "dimension")  # fmt: skip
def sobol_scramble(call: OpCall) -> Cost:
    """Per dimension, multiply 30 × 30 bits with the 30 bits of each of 30 columns."""
    state, matrices = need(call, 0, "direction numbers"), need(call, 1, "matrices")
    flops = 2 * SOBOL_BITS**3 * int_param(call, "dimension")
    return cost([state, matrices], [state], vector=flops, dtype=state.dtype)


@op("rngprims::philox_rand", family="random", source="2 per element: scale, shift")
def philox_rand(call: OpCall) -> Cost:
    """Uniform numbers of the requested size."""
    size, out = ints_param(call, "size"), output(call)
    if out is None and size is None:
        raise CannotKnow("the trace does not record the size of the result")
    out = out or TensorSpec(dtype_param(call, "f32"), size or ())
    return cost([], [out], vector=2 * numel(out), dtype=out.dtype)


@op(
    "aten::multinomial",
    "aten::randperm",
    family="random",
    source="a cumulative sum and a search",
    variants={"randperm": "aten::randperm"},
)
def multinomial(call: OpCall) -> Cost:
    """A running sum of the weights; a permutation is a sort of random keys and counts no FLOPs."""
    if variant(call, "randperm"):
        out, count = output(call), call.param("n")
        if out is None and type(count) is int and count >= 0:
            out = TensorSpec(dtype_param(call, "i64"), (count,))
        return cost([], None if out is None else [out], reason=NO_OUTPUTS)
    weights = need(call, 0, "weights")
    out, count = output(call), call.param("num_samples")
    if out is None and type(count) is int and count >= 0:
        out = TensorSpec("i64", (*sizes(weights)[:-1], count))
    return cost(
        [weights],
        None if out is None else [out],
        vector=2 * numel(weights),
        dtype=weights.dtype,
        reason="the trace does not record how many samples are drawn",
    )


@op(
    "aten::dropout",
    "aten::native_dropout",
    "aten::feature_dropout",
    "aten::alpha_dropout",
    "aten::_fused_dropout",
    "aten::feature_alpha_dropout",
    "aten::dropout1d",
    "aten::dropout2d",
    "aten::dropout3d",
    family="dropout",
    source="2 per element: compare, scale",
    variants={"native": "aten::native_dropout", "fused": "aten::_fused_dropout"},
)
def dropout(call: OpCall) -> Cost:
    """A comparison and a scaling per element; nothing in evaluation."""
    x = need(call, 0, "input")
    if call.param("train", call.param("training", True)) is False or call.param("p") == 0:
        return Cost()
    writes = outputs(call)
    if writes is None:
        native = variant(call, "native") or variant(call, "fused")
        writes = [x, TensorSpec("bool", sizes(x))] if native else [x]
    return cost([x], writes, vector=2 * numel(x), dtype=x.dtype)


@op(
    "aten::native_dropout_backward",
    "aten::_masked_scale",
    family="dropout",
    source="2 per element: mask, scale",
)
def dropout_backward(call: OpCall) -> Cost:
    """Multiply the gradient by the mask and the scale."""
    grad, mask = need(call, 0, "gradient"), need(call, 1, "mask")
    return cost([grad, mask], [grad], vector=2 * numel(grad), dtype=grad.dtype)


@with_forward("aten::native_dropout_backward", "aten::_masked_scale")
def dropout_backward_of(_: OpCall, forward: OpCall) -> Cost:
    """The backward of a dropout, with all sizes from the input of the forward."""
    return dropout_gradient(forward)[0]


@backward_of("aten::dropout", "aten::native_dropout", "aten::_fused_dropout")
def dropout_gradient(call: OpCall) -> tuple[Cost, Cost]:
    """Multiply the gradient by the mask and the scale."""
    x = need(call, 0, "input")
    mask = TensorSpec("bool", sizes(x))
    return cost([x, mask], [x], vector=2 * numel(x), dtype=x.dtype), Cost()
