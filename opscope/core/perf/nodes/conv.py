"""Cost models of convolution nodes."""

from __future__ import annotations

from opscope.core.perf.layouts import channels_last, weights_last
from opscope.core.perf.registry import CannotKnow, Cost, op, variant, words
from opscope.core.perf.shapes import (
    NO_OUTPUTS,
    NO_SHAPES,
    Part,
    as_ints,
    cost,
    need,
    need_output,
    numel,
    output,
    outputs,
    product,
    promote,
    sizes,
    tensors,
)
from opscope.core.perf.windows import windows
from opscope.core.schema import OpCall, TensorSpec

_FORWARD = words(
    """
    Conv Conv1D Conv2D Conv3D FusedConv QLinearConv ConvInteger NhwcConv NhwcFusedConv
    _FusedConv2D _FusedConv3D _MklConv2D _MklNativeConv2D _MklNativeFusedConv2D
    _MklFusedConv2D DepthwiseConv2dNative _FusedDepthwiseConv2dNative
    DepthwiseConv2D _MklNativeDepthwiseConv2dNative FusedConv2DBiasActivation
    _MklNativeConv3D
    """
)


@op(
    *_FORWARD,
    family="conv",
    source="2·outputs·(weights per output channel)",
    variants={
        "nhwc": "NhwcConv NhwcFusedConv",
        "depthwise": "*epthwise*",
        "tensorflow": "*Conv2D* *Conv3D* *Conv2d*",
    },
)
def conv(call: OpCall) -> Cost:
    """2 FLOPs for each output element and each weight of its channel."""
    operands = [t for t in tensors(call) if len(t.shape) >= 3]
    if len(operands) < 2:
        raise CannotKnow(NO_SHAPES)
    x, w = operands[0], operands[1]
    out = output(call) or _conv_result(call, x, w)
    rest: list[Part] = [t for t in tensors(call) if t is not x and t is not w]
    flops = 2 * numel(out) * _weights_per_output(call, sizes(x), sizes(w), out)
    true, note = as_ints(call.param("unpadded")), ""
    if true is not None and len(true) == len(w.shape):
        # ONNX Runtime's blocked layout pads channels with zeros; the model has fewer
        shape = sizes(out)
        flops = 2 * shape[0] * product(shape[2:]) * product(true)
    elif call.param("domain") == "com.microsoft.nchwc":
        note = "channels count as padded to whole blocks; the model before optimisation has their number"
    return cost([x, w, *rest], [out], matrix=flops, dtype=promote([x, w]), note=note)


def _weights_per_output(
    call: OpCall, x: tuple[int, ...], w: tuple[int, ...], out: TensorSpec
) -> int:
    last = weights_last(call, x, w, out)
    if variant(call, "depthwise"):
        # TensorFlow [k…, C, multiplier]; MindSpore [1 or C, 1, k…]
        return product(w[:-2]) if last else product(w[2:])
    return product(w[:-1]) if last else product(w[1:])


def _conv_result(call: OpCall, x: TensorSpec, w: TensorSpec) -> TensorSpec:
    """Compute the result from strides and padding, for a call without recorded outputs."""
    xs, ws = sizes(x), sizes(w)
    last, behind = channels_last(call, xs, ws, None), weights_last(call, xs, ws, None)
    rank = len(ws) - 2
    kernel = ws[:rank] if behind else ws[2:]
    spatial = xs[1:-1] if last else xs[2:]
    params: list[tuple[str, object]] = []
    for ours, theirs in (
        ("stride", ("strides", "stride")),
        ("dilation", ("dilations", "dilation")),
    ):
        value = next((v for key in theirs if (v := as_ints(call.param(key))) is not None), None)
        if value is not None and len(value) == rank + 2:
            value = value[1:-1] if last else value[2:]
        if value is not None:
            params.append((ours, value))
    padding = call.param("padding", call.param("pad_mode", call.param("auto_pad")))
    pads = as_ints(call.param("pads"))
    if pads is not None:
        params.append(("padding", pads))
    elif isinstance(padding, str):
        params.append(("padding", "same" if "same" in padding.lower() else "valid"))
    elif not params and call.param("kernel_shape") is None:  # ONNX leaves out its defaults
        raise CannotKnow(
            "the trace records neither strides and padding nor the shape of the output"
        )
    known = OpCall("conv", params=tuple(params))  # type: ignore[arg-type]
    out, _ = windows(known, spatial, kernel)
    channels = ws[-1] if behind else ws[0]
    if variant(call, "depthwise"):
        channels = ws[-1] * ws[-2] if behind else xs[1]
    shape = (xs[0], *out, channels) if last else (xs[0], channels, *out)
    return TensorSpec(x.dtype, shape)


@op("ConvTranspose", "Conv2DTranspose", "Conv3DTranspose", family="conv",
    source="2·inputs·(weights per input channel)")  # fmt: skip
def conv_transpose(call: OpCall) -> Cost:
    """2 FLOPs for each input element and weight of its channel; ONNX weights are [C, O/groups, k…]."""
    x, w = need(call, 0, "input"), need(call, 1, "weight")
    flops = 2 * numel(x) * product(sizes(w)[1:])
    out = output(call)
    return cost([x, w, *tensors(call)[2:]], None if out is None else [out], matrix=flops,
                dtype=promote([x, w]), reason=NO_OUTPUTS)  # fmt: skip


@op(
    *words(
        """
        Conv2DBackpropInput Conv2DBackpropInputV2 Conv3DBackpropInput Conv3DBackpropInputV2
        DepthwiseConv2dNativeBackpropInput _MklNativeConv2DBackpropInput
        _MklConv2DBackpropInput Conv2DBackpropFilter Conv2DBackpropFilterV2 Conv3DBackpropFilter
        Conv3DBackpropFilterV2 DepthwiseConv2dNativeBackpropFilter _MklNativeConv2DBackpropFilter
        _MklConv2DBackpropFilter _MklNativeConv2DBackpropFilterWithBias
        _MklConv2DBackpropFilterWithBias
        """
    ),
    family="conv",
    source="as the forward: 2·(output gradient)·(weights per output channel)",
    variants={
        "filter": "*Filter*",
        "with_bias": "*WithBias",
        "depthwise": "*epthwise*",
        "tensorflow": "*Conv2D* *Conv3D* *Conv2d*",
    },
)
def conv_backprop(call: OpCall) -> Cost:
    """The forward's multiply-adds. The gradient is the last operand, in MindSpore the first."""
    operands = [t for t in tensors(call) if len(t.shape) >= 3]
    if len(operands) < 2:
        raise CannotKnow(NO_SHAPES)
    by_filter, biased = variant(call, "filter"), variant(call, "with_bias")
    out = need_output(call)
    x = operands[0] if by_filter else out
    w = out if by_filter else operands[0]
    grad = operands[-1]
    mindspore = call.param("pad_mode") is not None
    if mindspore:
        grad = operands[0]
        x = operands[1] if by_filter else out
        w = out if by_filter else operands[1]
    flops = 2 * numel(grad) * _weights_per_output(call, sizes(x), sizes(w), grad)
    # oneDNN's op also computes the bias gradient: a sum over all dimensions but the channels
    channels = numel(w) // _weights_per_output(call, sizes(x), sizes(w), grad) if biased else 0
    return cost(operands[-2:], outputs(call) or [], matrix=flops,
                vector=max(numel(grad) - channels, 0) if biased else 0,
                dtype=promote([grad, w]))  # fmt: skip


@op("BiasAddGrad", family="reduction", source="inputs − outputs")
def bias_grad(call: OpCall) -> Cost:
    """The sum over all dimensions but the channels."""
    grad = need(call, 0, "gradient")
    out = output(call)
    if out is None:
        out = TensorSpec(grad.dtype, sizes(grad)[-1:])
    return cost([grad], [out], vector=max(numel(grad) - numel(out), 0), dtype=grad.dtype)
