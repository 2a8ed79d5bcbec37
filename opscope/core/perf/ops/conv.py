"""Convolutions of any dimension: 2 FLOPs per multiply-add, including those on padding.

For input [N, C, *in], weight [O, C/groups, *k] and output [N, O, *out]:
forward = data gradient = weight gradient = 2·N·prod(out)·O·(C/groups)·prod(k); a transposed
convolution has prod(in) instead of prod(out). torch.utils.flop_counter counts the same, except for the
weight gradient of a grouped convolution, which it multiplies by the number of groups once too often.
"""

from __future__ import annotations

from collections.abc import Sequence

from opscope.core.perf.registry import (
    CannotKnow,
    Cost,
    backward_of,
    op,
    variant,
    with_forward,
    words,
)
from opscope.core.perf.shapes import (
    Part,
    Span,
    cost,
    int_param,
    ints_param,
    knows_params,
    need,
    numel,
    output,
    product,
    promote,
    sizes,
    span,
    tensors,
)
from opscope.core.perf.windows import out_size, windows
from opscope.core.schema import OpCall, TensorSpec

_SOURCE = "2·N·prod(out)·O·(C/groups)·prod(k) (torch.utils.flop_counter)"


def is_transposed(call: OpCall) -> bool:
    """Whether the op's name or its ``transposed`` parameter says that the convolution is transposed."""
    return variant(call, "transpose") or bool(call.param("transposed", False))


def conv_flops(batch: int, spatial: Sequence[int], weight: Sequence[int]) -> int:
    """Return 2·N·prod(spatial)·prod(weight) FLOP; spatial sizes: the output's (transposed: the input's)."""
    return 2 * batch * product(spatial) * product(weight)


def _parts(x: TensorSpec, w: TensorSpec) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return the batch size, spatial sizes and weight sizes. The input may have no batch dimension.

    Raises CannotKnow if the shapes are not a convolution's.
    """
    xs, ws = sizes(x), sizes(w)
    rank = len(ws) - 2
    if rank < 1 or len(xs) not in (rank + 1, rank + 2):
        raise CannotKnow(f"the shapes are not a convolution's: input {list(xs)}, weight {list(ws)}")
    return (xs[0] if len(xs) == rank + 2 else 1), xs[-rank:], ws


_FORWARD = words("""
    aten::convolution aten::_convolution aten::_convolution_mode aten::convolution_overrideable
    aten::conv1d aten::conv2d aten::conv3d aten::conv_transpose1d aten::conv_transpose2d
    aten::conv_transpose3d aten::cudnn_convolution aten::cudnn_convolution_relu
    aten::cudnn_convolution_add_relu aten::cudnn_convolution_transpose aten::miopen_convolution
    aten::miopen_convolution_relu aten::miopen_convolution_add_relu
    aten::miopen_convolution_transpose aten::miopen_depthwise_convolution aten::mkldnn_convolution
    mkldnn::_convolution_pointwise aten::_mps_convolution aten::_nnpack_spatial_convolution
    aten::_mps_convolution_transpose mkldnn::_convolution_transpose_pointwise aten::thnn_conv2d
    aten::_slow_conv2d_forward aten::slow_conv3d aten::slow_conv3d_forward aten::slow_conv_dilated2d
    aten::slow_conv_dilated3d aten::slow_conv_transpose2d aten::slow_conv_transpose3d
    aten::_conv_depthwise2d aten::conv_depthwise3d aten::_thnn_conv_depthwise2d_forward
    aten::thnn_conv_depthwise2d aten::thnn_conv2d_forward
""")


@op(
    *_FORWARD,
    family="conv",
    source=_SOURCE,
    variants={"relu": "*relu*", "add_relu": "*add_relu*", "transpose": "*transpose*"},
)
def convolution(call: OpCall) -> Cost:
    """2·N·prod(out)·prod(weight); transposed: 2·N·prod(in)·prod(weight)."""
    x, w = need(call, 0, "input"), need(call, 1, "weight")
    batch, spatial, weight = _parts(x, w)
    transposed = is_transposed(call)
    out, touched = _output(call, x, spatial, weight, transposed)
    operands = tensors(call)
    flops = conv_flops(batch, spatial if transposed else sizes(out)[-len(spatial) :], weight)
    reads: list[Part] = [w, *(t for t in operands[2:3] if not variant(call, "add_relu"))]
    reads.append(span(x, numel(x) // max(product(spatial), 1) * touched))
    vector = 0
    if variant(call, "relu"):
        vector = numel(out) * (2 if variant(call, "add_relu") else 1)
        if variant(call, "add_relu"):
            reads.extend(operands[2:4])
    return cost(reads, [out], matrix=flops, vector=vector, dtype=promote([x, w]))


def _output(
    call: OpCall, x: TensorSpec, spatial: tuple[int, ...], weight: tuple[int, ...], transposed: bool
) -> tuple[TensorSpec, int]:
    """Return the result, and the number of spatial positions of the input that are touched."""
    rank = len(spatial)
    recorded = output(call)
    if knows_params(call):
        out, seen = windows(call, spatial, weight[2:], transposed)
        if recorded is None:
            groups = int_param(call, "groups", 1)
            channels = weight[1] * groups if transposed else weight[0]
            lead = sizes(x)[: -rank - 1]
            recorded = TensorSpec(x.dtype, (*lead, channels, *out))
        return recorded, product(seen)
    if recorded is None:
        if all(n == 1 for n in (*spatial, *weight[2:])) and not transposed:
            return TensorSpec(x.dtype, (*sizes(x)[: -rank - 1], weight[0], *spatial)), 1
        raise CannotKnow("the trace records neither stride and padding nor the output's shape")
    if transposed:
        return recorded, product(spatial)
    return recorded, _least_touched(spatial, sizes(recorded)[-rank:], weight[2:])


def _least_touched(spatial: Sequence[int], out: Sequence[int], kernel: Sequence[int]) -> int:
    """The fewest positions touched if the stride is not recorded: windows of one element may skip some."""
    return product(min(o, n) if k == 1 else n for n, o, k in zip(spatial, out, kernel, strict=True))


@op("aten::conv_tbc", family="conv", source=_SOURCE)
def conv_tbc(call: OpCall) -> Cost:
    """Layout [time, batch, channel]: 2·T'·B·prod(weight), with weight [k, C, O]."""
    x, w, bias = (need(call, n, "operand") for n in range(3))
    (time, batch, _), weight = sizes(x), sizes(w)
    pad = int_param(call, "pad", 0)
    steps = out_size(time, weight[0], 1, 2 * pad, 1)
    out = output(call) or TensorSpec(x.dtype, (steps, batch, weight[2]))
    return cost([x, w, bias], [out], matrix=2 * steps * batch * product(weight), dtype=x.dtype)


@op("aten::conv_tbc_backward", family="conv", source=_SOURCE + " for each of the two gradients")
def conv_tbc_backward(call: OpCall) -> Cost:
    """Both gradients cost the forward's multiply-adds; the bias's is a sum over the other dimensions."""
    grad, x, w, bias = (need(call, n, "operand") for n in range(4))
    wide = sizes(w)
    if len(wide) != 3:
        raise CannotKnow(f"the shape is not a convolution weight's: {list(wide)}")
    each = 2 * numel(grad) * wide[0] * wide[1]
    added = max(numel(grad) - numel(bias), 0)
    return cost([grad, x, w], [x, w, bias], matrix=2 * each, vector=added, dtype=promote([x, w]))


@op(
    "torchvision::deform_conv2d",
    "torchvision::_deform_conv2d",
    family="conv",
    source=_SOURCE + "; bilinear sampling 7 per tap and channel",
)
def deform_conv2d(call: OpCall) -> Cost:
    """A convolution, and a bilinear sample (4 multiplies, 3 adds; a mask 1) per tap and channel."""
    x, w, offset = (need(call, n, "operand") for n in range(3))
    batch, _, weight = _parts(x, w)
    spatial = sizes(offset)[-2:]
    operands = tensors(call)
    mask = next((t for t in operands[3:] if len(t.shape) == 4), None)
    channels = sizes(x)[-3]
    samples = batch * channels * product(spatial) * product(weight[2:])
    vector = samples * (8 if mask is not None else 7)
    out = output(call) or TensorSpec(x.dtype, (batch, weight[0], *spatial))
    return cost(
        [x, w, *operands[2:]],
        [out],
        matrix=conv_flops(batch, spatial, weight),
        vector=vector,
        dtype=promote([x, w]),
    )


# ------------------------------------------------------------------------------- backward


@op(
    "aten::convolution_backward",
    "aten::convolution_backward_overrideable",
    "aten::_slow_conv2d_backward",
    "aten::slow_conv_dilated2d_backward",
    "aten::slow_conv_transpose2d_backward",
    family="conv",
    source=_SOURCE + " for each gradient that output_mask requests",
    variants={"transpose": "aten::slow_conv_transpose2d_backward"},
)
def convolution_backward(call: OpCall) -> Cost:
    """The data gradient and the weight gradient, each with the forward's multiply-adds."""
    grad, x, w = (need(call, n, "operand") for n in range(3))
    return _backward(call, grad, x, w)


@op(
    "aten::cudnn_convolution_backward",
    "aten::cudnn_convolution_transpose_backward",
    "aten::miopen_convolution_backward",
    "aten::miopen_convolution_transpose_backward",
    "aten::miopen_depthwise_convolution_backward",
    "aten::mkldnn_convolution_backward",
    "aten::mps_convolution_backward",
    "aten::mps_convolution_transpose_backward",
    family="conv",
    source=_SOURCE + " for each gradient that output_mask requests",
    variants={"transpose": "*transpose*"},
)
def cudnn_convolution_backward(call: OpCall) -> Cost:
    """As ``convolution_backward``, with the input before the gradient."""
    x, grad, w = (need(call, n, "operand") for n in range(3))
    return _backward(call, grad, x, w)


def _mask(call: OpCall) -> tuple[bool, bool, bool]:
    value = call.param("output_mask")
    if isinstance(value, tuple) and len(value) >= 2:
        return bool(value[0]), bool(value[1]), len(value) > 2 and bool(value[2])
    recorded = call.output_leaves()
    if recorded is not None and len(recorded) >= 2:
        return (
            recorded[0] is not None,
            recorded[1] is not None,
            len(recorded) > 2 and bool(recorded[2]),
        )
    raise CannotKnow("the trace does not record which gradients were requested (output_mask)")


def _backward(call: OpCall, grad: TensorSpec, x: TensorSpec, w: TensorSpec) -> Cost:
    data, weights, bias = _mask(call)
    by_input, by_weight = gradients(grad, x, w, is_transposed(call))
    total = Cost()
    if data:
        total += by_input
    if weights:
        total += by_weight
    if data and weights:  # the gradient is one tensor, read once for both
        again = cost([grad], [])
        if total.bytes_read is not None and again.bytes_read is not None:
            total = _less_read(total, again.bytes_read)
    if bias:
        total += _bias_gradient(grad, w, data or weights)
    return total


def _bias_gradient(grad: TensorSpec, w: TensorSpec, beside: bool) -> Cost:
    """The cost of a sum over all but the channels; ``beside``: another gradient already reads ``grad``."""
    channels = sizes(grad)[-(len(sizes(w)) - 1)]
    return cost(
        [None if beside else grad],
        [Span(grad.dtype, channels)],
        vector=max(numel(grad) - channels, 0),
        dtype=grad.dtype,
    )


def _less_read(total: Cost, by: int) -> Cost:
    return Cost(
        total.matrix_flops,
        total.vector_flops,
        (total.bytes_read or 0) - by,
        total.bytes_written,
        total.by_dtype,
        total.bytes_reason,
    )


def gradients(
    grad: TensorSpec, x: TensorSpec, w: TensorSpec, transposed: bool
) -> tuple[Cost, Cost]:
    """Return (data gradient, weight gradient) of a convolution from its three tensors."""
    batch, spatial, weight = _parts(x, w)
    flops = conv_flops(batch, spatial if transposed else sizes(grad)[-len(spatial) :], weight)
    dtype = promote([grad, w])
    return (
        cost([grad, w], [x], matrix=flops, dtype=dtype),
        cost([grad, x], [w], matrix=flops, dtype=dtype),
    )


_BY_INPUT = (
    "aten::cudnn_convolution_backward_input",
    "aten::cudnn_convolution_transpose_backward_input",
    "aten::miopen_convolution_backward_input",
    "aten::mkldnn_convolution_backward_input",
)
_BY_WEIGHT = (
    "aten::cudnn_convolution_backward_weight",
    "aten::cudnn_convolution_transpose_backward_weight",
    "aten::miopen_convolution_backward_weight",
    "aten::mkldnn_convolution_backward_weights",
)


@op(
    *_BY_INPUT,
    family="conv",
    source=_SOURCE,
    variants={"transpose": "aten::cudnn_convolution_transpose_backward_input"},
)
def backward_input(call: OpCall) -> Cost:
    """2·N·prod(grad)·prod(weight); the input's size comes from a parameter or the forward's call."""
    grad, w = need(call, 0, "output gradient"), need(call, 1, "weight")
    batch, spatial, weight = _parts(grad, w)
    recorded = output(call)
    size = ints_param(call, "self_size") or ints_param(call, "input_size")
    if recorded is None and size is not None:
        recorded = TensorSpec(grad.dtype, size)
    if variant(call, "transpose"):
        if recorded is None:
            raise CannotKnow("the trace does not record the size of the input")
        spatial = sizes(recorded)[-len(spatial) :]
    return cost(
        [grad, w],
        None if recorded is None else [recorded],
        matrix=conv_flops(batch, spatial, weight),
        dtype=promote([grad, w]),
        reason="the trace does not record the size of the input",
    )


@op(
    *_BY_WEIGHT,
    family="conv",
    source=_SOURCE,
    variants={"transpose": "aten::cudnn_convolution_transpose_backward_weight"},
)
def backward_weight(call: OpCall) -> Cost:
    """2·N·prod(grad)·prod(weight); the weight's size comes from a parameter or the forward's call."""
    grad, x = need(call, 0, "output gradient"), need(call, 1, "input")
    size = ints_param(call, "weight_size") or ints_param(call, "weights_size")
    recorded = output(call)
    if recorded is None and size is not None:
        recorded = TensorSpec(grad.dtype, size)
    if recorded is None:
        raise CannotKnow("the trace does not record the size of the weight")
    figures = gradients(grad, x, recorded, variant(call, "transpose"))[1]
    return (
        figures + _bias_gradient(grad, recorded, True)
        if call.param("bias_defined") is True
        else figures
    )


@with_forward(*_BY_INPUT)
def backward_input_of(call: OpCall, forward: OpCall) -> Cost:
    """The data gradient, with all sizes from the forward's input and weight."""
    return _gradients_of(call, forward)[0]


@with_forward(*_BY_WEIGHT)
def backward_weight_of(call: OpCall, forward: OpCall) -> Cost:
    """The weight gradient, with all sizes from the forward's input and weight."""
    grad = need(call, 0, "output gradient")
    figures = _gradients_of(call, forward)[1]
    if call.param("bias_defined") is not True:
        return figures
    return figures + _bias_gradient(grad, need(forward, 1, "weight"), True)


def _gradients_of(call: OpCall, forward: OpCall) -> tuple[Cost, Cost]:
    x, w = need(forward, 0, "input"), need(forward, 1, "weight")
    return gradients(need(call, 0, "output gradient"), x, w, variant(call, "transpose"))


@backward_of(*_FORWARD)
def conv_backward(call: OpCall) -> tuple[Cost, Cost]:
    """Both gradients, computed from only the shapes of the forward."""
    x, w = need(call, 0, "input"), need(call, 1, "weight")
    _, spatial, weight = _parts(x, w)
    out, _ = _output(call, x, spatial, weight, is_transposed(call))
    data, weights = gradients(out, x, w, is_transposed(call))
    operands = tensors(call)
    if len(operands) > 2 and not variant(call, "add_relu") and len(operands[2].shape) == 1:
        weights += _bias_gradient(out, w, True)
    return data, weights
