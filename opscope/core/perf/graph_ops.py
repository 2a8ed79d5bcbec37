"""The same models under the names of TensorFlow, Keras, ONNX and MindSpore graphs.

Their names overlap (``MatMul``, ``Conv2D``, ``Add``), so that one model serves a name: parameters tell
the framework where it matters, and the shapes decide the layout where no parameter does. Results are
as a rule recorded, so that most counts need no attribute at all.
"""

from __future__ import annotations

from opscope.core.schema import OpCall, TensorSpec

from .registry import CannotKnow, Cost, op, words
from .shapes import (
    Part,
    as_ints,
    broadcast,
    cost,
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

# -------------------------------------------------------------------------------- products


def _flag(call: OpCall, *keys: str) -> bool:
    return any(call.param(key) in (True, 1) for key in keys)


@op(
    *words(
        """
        MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Gemm Dense MatMulV2 MatMulExt FusedMatMul
        FusedGemm _FusedMatMul _FusedBatchMatMulV2 _MklMatMul _MklFusedMatMul _MklNativeMatMul
        _MklNativeFusedMatMul _MklNativeBatchMatMulV2 MatMulInteger MatMulInteger16 QLinearMatMul
        QuantizedMatMul SparseMatMul MatMulBiasAddFusion BiasDense QGemm MatMulIntegerToFloat
        """
    ),
    family="gemm",
    source="2·M·N·K with the transposes that the parameters give",
)
def matmul(call: OpCall) -> Cost:
    """Operands in the order they are; what is added counts no FLOPs, a fused activation none."""
    operands = tensors(call)
    if call.name.startswith("QLinear") or call.name in ("QGemm", "MatMulIntegerToFloat"):
        operands = [t for t in operands if len(t.shape) >= 2]  # scales and zero points between them
    if len(operands) < 2:
        raise CannotKnow("the trace has no shapes for this call")
    a, b = operands[0], operands[1]
    left, right = sizes(a), sizes(b)
    if len(left) < 1 or len(right) < 1:
        raise CannotKnow(f"not matrices: {list(left)} and {list(right)}")
    if _flag(call, "transpose_a", "transA", "adj_x", "transpose_x1") and len(left) > 1:
        left = (*left[:-2], left[-1], left[-2])
    swap = _flag(call, "transpose_b", "transB", "adj_y", "transpose_x2") or call.name in (
        "Dense", "BiasDense",
    )  # fmt: skip
    if swap and len(right) > 1:
        right = (*right[:-2], right[-1], right[-2])
    k = left[-1]
    if k != (right[-2] if len(right) > 1 else right[0]):
        raise CannotKnow(f"inner dimensions differ: {list(left)} and {list(right)}")
    out = output(call)
    dtype = promote([a, b])
    if out is None:
        lead = broadcast(left[:-2], right[:-2])
        tail = (right[-1],) if len(right) > 1 else ()
        out = TensorSpec(dtype, (*lead, *left[-2:-1], *tail))
    rest: list[Part] = [t for t in tensors(call) if t is not a and t is not b]
    return cost([a, b, *rest], [out], matrix=2 * numel(out) * k, dtype=dtype)


@op("MatMulNBits", "MatMulBnb4", "MatMulFpQ4", family="gemm", source="2·M·N·K, the weight packed")
def packed_matmul(call: OpCall) -> Cost:
    """K and N are parameters; the weight is read as it is packed."""
    x = need(call, 0, "input")
    n, k = as_ints(call.param("N")), as_ints(call.param("K"))
    if n is None or k is None:
        raise CannotKnow("the trace does not record N and K of the packed weight")
    rows = product(sizes(x)[:-1])
    out = output(call) or TensorSpec(x.dtype, (*sizes(x)[:-1], n[0]))
    return cost([*tensors(call)], [out], matrix=2 * rows * n[0] * k[0], dtype=x.dtype)


# ---------------------------------------------------------------------------- convolutions


def channels_last(
    call: OpCall, x: tuple[int, ...], w: tuple[int, ...], out: TensorSpec | None
) -> bool:
    """Whether data is [N, …, C], by parameter, else as the weights fit it."""
    layout = call.param("data_format", call.param("format"))
    if isinstance(layout, str) and layout:
        return layout.endswith("C")
    return call.name.startswith("Nhwc") or weights_last(call, x, w, out)


def weights_last(
    call: OpCall, x: tuple[int, ...], w: tuple[int, ...], out: TensorSpec | None
) -> bool:
    """Whether weights are [k…, I, O] as TensorFlow has them in every data layout, not [O, I, k…].

    ONNX and MindSpore (``pad_mode``) have the second. Where the name is shared, the channels of data and result
    (``out``, or its gradient) decide, and TensorFlow's order where both do.
    """
    if call.param("pad_mode") is not None or call.param("kernel_shape") is not None:
        return False
    if "Conv2D" not in call.name and "Conv3D" not in call.name and "Conv2d" not in call.name:
        return False
    channels = (x[-1], x[1]) if len(x) > 1 else (1, 1)
    results = (out.shape[-1], out.shape[1]) if out is not None and len(out.shape) > 1 else None
    depthwise = "epthwise" in call.name  # a channel has as many results as there are multipliers
    first, last = (
        any(c % max(inner, 1) == 0 for c in channels) and (results is None or outer in results)
        for inner, outer in ((w[1], w[0]), (w[-2], w[-1] * (w[-2] if depthwise else 1)))
    )
    return last or not first


_FORWARD = words(
    """
    Conv Conv1D Conv2D Conv3D FusedConv QLinearConv ConvInteger NhwcConv NhwcFusedConv
    _FusedConv2D _FusedConv3D _MklConv2D _MklNativeConv2D _MklNativeFusedConv2D
    _MklFusedConv2D DepthwiseConv2dNative _FusedDepthwiseConv2dNative
    DepthwiseConv2D _MklNativeDepthwiseConv2dNative FusedConv2DBiasActivation
    _MklNativeConv3D
    """
)


@op(*_FORWARD, family="conv", source="2·outputs·(weights an output channel)")
def conv(call: OpCall) -> Cost:
    """2 FLOPs for each output and each weight of its channel."""
    operands = [t for t in tensors(call) if len(t.shape) >= 3]
    if len(operands) < 2:
        raise CannotKnow("the trace has no shapes for this call")
    x, w = operands[0], operands[1]
    out = output(call) or _conv_result(call, x, w)
    rest: list[Part] = [t for t in tensors(call) if t is not x and t is not w]
    flops = 2 * numel(out) * _weights_per_output(call, sizes(x), sizes(w), out)
    return cost([x, w, *rest], [out], matrix=flops, dtype=promote([x, w]))


def _weights_per_output(
    call: OpCall, x: tuple[int, ...], w: tuple[int, ...], out: TensorSpec
) -> int:
    last = weights_last(call, x, w, out)
    if "epthwise" in call.name:
        # TensorFlow [k…, C, multiplier]; MindSpore [1 or C, 1, k…]
        return product(w[:-2]) if last else product(w[2:])
    return product(w[:-1]) if last else product(w[1:])


def _conv_result(call: OpCall, x: TensorSpec, w: TensorSpec) -> TensorSpec:
    """The result's shape from strides and padding, where it was not recorded."""
    from .conv import windows

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
            "the trace does not record strides and padding, and not the output's shape"
        )
    known = OpCall("conv", params=tuple(params))  # type: ignore[arg-type]
    out, _ = windows(known, spatial, kernel)
    channels = ws[-1] if behind else ws[0]
    if "epthwise" in call.name:
        channels = ws[-1] * ws[-2] if behind else xs[1]
    shape = (xs[0], *out, channels) if last else (xs[0], channels, *out)
    return TensorSpec(x.dtype, shape)


@op("ConvTranspose", "Conv2DTranspose", "Conv3DTranspose", family="conv",
    source="2·inputs·(weights an input channel)")  # fmt: skip
def conv_transpose(call: OpCall) -> Cost:
    """2 FLOPs for each input and each weight of its channel: ONNX weights are [C, O/groups, k…]."""
    x, w = need(call, 0, "input"), need(call, 1, "weight")
    flops = 2 * numel(x) * product(sizes(w)[1:])
    out = output(call)
    return cost([x, w, *tensors(call)[2:]], None if out is None else [out], matrix=flops,
                dtype=promote([x, w]), reason="the trace has no outputs")  # fmt: skip


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
    source="as the forward: 2·(output gradient)·(weights an output channel)",
)
def conv_backprop(call: OpCall) -> Cost:
    """The forward's multiply-adds. The gradient is the last operand of these, or MindSpore's first."""
    operands = [t for t in tensors(call) if len(t.shape) >= 3]
    if len(operands) < 2:
        raise CannotKnow("the trace has no shapes for this call")
    by_filter = "Filter" in call.name
    out = output(call)
    if out is None:
        raise CannotKnow("the trace has no outputs")
    x = operands[0] if by_filter else out
    w = out if by_filter else operands[0]
    grad = operands[-1]
    mindspore = call.param("pad_mode") is not None
    if mindspore:
        grad = operands[0]
        x = operands[1] if by_filter else out
        w = out if by_filter else operands[1]
    flops = 2 * numel(grad) * _weights_per_output(call, sizes(x), sizes(w), grad)
    return cost([*operands[-2:]], [*(outputs(call) or [])], matrix=flops, dtype=promote([grad, w]))


@op("BiasAddGrad", family="reduction", source="outputs fewer than inputs")
def bias_grad(call: OpCall) -> Cost:
    """The sum over all but the channels."""
    grad = need(call, 0, "gradient")
    out = output(call)
    if out is None:
        out = TensorSpec(grad.dtype, sizes(grad)[-1:])
    return cost([grad], [out], vector=max(numel(grad) - numel(out), 0), dtype=grad.dtype)


# ------------------------------------------------------------------- pooling, norms, losses


def _window(call: OpCall) -> int:
    for key in ("ksize", "kernel_shape", "kernel_size"):
        value = as_ints(call.param(key))
        if value:
            return product(value)
    raise CannotKnow("the trace does not record the size of the window")


@op(*words("MaxPool MaxPoolV2 MaxPool3D MaxPoolWithArgmax AvgPool AvgPool3D AveragePool LpPool"),
    family="pooling", source="k − 1 comparisons an output, or k − 1 additions and a division")  # fmt: skip
def pool(call: OpCall) -> Cost:
    """The window's operations for each output."""
    x, out = need(call, 0, "input"), output(call)
    if out is None:
        raise CannotKnow("the trace has no outputs")
    each = _window(call) - (1 if "Max" in call.name else 0)
    return cost([x], [*(outputs(call) or [out])], vector=each * numel(out), dtype=x.dtype)


@op("GlobalAveragePool", "GlobalMaxPool", family="pooling", source="inputs, or inputs − outputs")
def global_pool(call: OpCall) -> Cost:
    """All positions of each channel."""
    x = need(call, 0, "input")
    shape = sizes(x)
    out = output(call) or TensorSpec(x.dtype, (*shape[:2], *(1,) * (len(shape) - 2)))
    flops = max(numel(x) - (numel(out) if "Max" in call.name else 0), 0)
    return cost([x], [out], vector=flops, dtype=x.dtype)


@op(*words("MaxPoolGrad MaxPoolGradV2 MaxPool3DGrad MaxPoolGradWithArgmax AvgPoolGrad AvgPool3DGrad"),
    family="pooling",
    source="an addition an output gradient, k comparisons where no index says where; a mean k + 1")  # fmt: skip
def pool_grad(call: OpCall) -> Cost:
    """The gradient goes where the maximum was, which is sought again unless an index tells it (as
    TensorFlow's own profiler counts), or to all of the window."""
    found = tensors(call)
    grad = found[-1] if "Argmax" not in call.name else found[min(1, len(found) - 1)]
    if not found:
        raise CannotKnow("the trace has no shapes for this call")
    each = 1 if "Argmax" in call.name else _window(call) + 1
    out = outputs(call)
    return cost([*found], out, vector=each * numel(grad), dtype=grad.dtype,
                reason="the trace has no outputs")  # fmt: skip


@op(*words("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 _FusedBatchNormEx BatchNormalization "
           "BatchNorm BatchNormWithActivation _MklFusedBatchNormV3 InstanceNormalization"),
    family="norm", source="training 7 an element, evaluation 4")  # fmt: skip
def batch_norm(call: OpCall) -> Cost:
    """Statistics 4, normalise 1, affine 2; evaluation: subtract, multiply, affine."""
    x = need(call, 0, "input")
    training = call.param("is_training", call.param("training_mode"))
    if training is None:  # TensorFlow trains unless told, ONNX and deployed graphs do not
        training = call.name not in ("BatchNormalization",)
    each = 7 if training or call.name.startswith("Instance") else 4
    return cost([*tensors(call)], outputs(call) or [x], vector=each * numel(x), dtype=x.dtype)


@op(*words("FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3 BatchNormGrad "
           "_FusedBatchNormGradEx _MklFusedBatchNormGradV3"),
    family="norm", source="10 an element")  # fmt: skip
def batch_norm_grad(call: OpCall) -> Cost:
    """As aten::native_batch_norm_backward."""
    grad, x = need(call, 0, "gradient"), need(call, 1, "input")
    return cost([*tensors(call)], outputs(call) or [x], vector=10 * numel(grad), dtype=x.dtype)


@op(*words("LayerNormalization LayerNorm SkipLayerNormalization EmbedLayerNormalization "
           "SimplifiedLayerNormalization SkipSimplifiedLayerNormalization GroupNormalization GroupNorm "
           "RMSNormalization RmsNorm"),
    family="norm", source="layer 7 an element, root-mean-square 4; skip 1")  # fmt: skip
def layer_norm(call: OpCall) -> Cost:
    """Mean, variance, normalise, affine; the skip connection's addition besides."""
    x = need(call, 0, "input")
    simple = "Simplified" in call.name or call.name[0] == "R"
    each = (4 if simple else 7) + (1 if call.name.startswith("Skip") else 0)
    return cost([*tensors(call)], outputs(call) or [x], vector=each * numel(x), dtype=x.dtype)


@op("LayerNormGrad", "GroupNormGrad", "RmsNormGrad", family="norm", source="12 an element")
def layer_norm_grad(call: OpCall) -> Cost:
    """As aten::native_layer_norm_backward."""
    x = need(call, 0, "input")
    return cost([*tensors(call)], outputs(call) or [x], vector=12 * numel(x), dtype=x.dtype)


@op("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits", family="loss",
    source="log-softmax 5, times the labels and summed 2, and the gradient 1 an element")  # fmt: skip
def softmax_cross_entropy(call: OpCall) -> Cost:
    """Loss and gradient at once; sparse labels touch an element a row."""
    x, labels = need(call, 0, "logits"), need(call, 1, "labels")
    rows = product(sizes(x)[:-1])
    sparse = len(labels.shape) < len(x.shape)
    flops = 6 * numel(x) + (2 * rows if sparse else 2 * numel(x))
    out = outputs(call) or [TensorSpec(x.dtype, (rows,)), x]
    return cost([x, labels], [*out], vector=flops, dtype=x.dtype)


@op("SoftmaxGrad", "LogSoftmaxGrad", family="softmax", source="4 an element")
def softmax_grad(call: OpCall) -> Cost:
    """dy·y, its sum, the difference, the product."""
    y = need(call, 0, "output")
    return cost([*tensors(call)], outputs(call) or [y], vector=4 * numel(y), dtype=y.dtype)


@op("L2Loss", family="loss", source="2 an element: square, add")
def l2_loss(call: OpCall) -> Cost:
    """Half the sum of squares."""
    x = need(call, 0, "input")
    return cost([x], [TensorSpec(x.dtype, ())], vector=2 * numel(x), dtype=x.dtype)


@op(
    "AddN", "Accumulate", "AccumulateNV2", family="elementwise", source="n − 1 additions an element"
)
def add_n(call: OpCall) -> Cost:
    """The sum of n tensors."""
    found = tensors(call)
    x = need(call, 0, "operand")
    flops = (len(found) - 1) * numel(x)
    return cost([*found], [output(call) or x], vector=flops, dtype=x.dtype)


@op("SquaredDifference", "SquareSumV1", family="elementwise", source="2 an element")
def squared_difference(call: OpCall) -> Cost:
    """Subtract and square."""
    found = tensors(call)[:2]
    need(call, 0, "operand")
    shape = broadcast(*map(sizes, found))
    out = output(call) or TensorSpec(promote(found), shape)
    return cost([*found], [out], vector=2 * product(shape), dtype=promote(found))


@op(*words("Split SplitV SplitToSequence Unpack Unstack Slice StridedSlice Crop "
           "StridedSliceGrad SliceGrad Im2Col Roll SpaceToBatch TensorListFromTensor TensorListStack TensorListGetItem TensorListSetItem TensorListPushBack TensorListPopBack TensorListGather TensorListScatterIntoExistingList IteratorGetNext"),
    family="copy", source="what is taken is read and written once")  # fmt: skip
def take(call: OpCall) -> Cost:
    """As many elements are read as are written."""
    x = need(call, 0, "input") if tensors(call) else None
    out = outputs(call)
    if x is None or not out:
        return cost(None, None, reason="the trace has no outputs")
    return cost([span(x, min(sum(map(numel, out)), numel(x)))], [*out])


@op(*words("Assign AssignVariableOp StridedSliceAssign ResourceStridedSliceAssign "
           "TensorStridedSliceUpdate"),
    family="copy", source="the value read, as many elements written")  # fmt: skip
def assign(call: OpCall) -> Cost:
    """The value is the last operand; a copy of the whole besides where the result is a new tensor."""
    found = tensors(call)
    if len(found) < 2:
        return cost(None, None, reason="the trace has no shapes for this call")
    target, value = found[0], found[-1]
    if call.name.startswith("Tensor"):
        return cost([target, value], [output(call) or target])
    try:
        return cost([value], [span(target, numel(value))])
    except CannotKnow as why:
        return cost(None, None, reason=str(why))


@op(*words("ResizeBilinear ResizeNearestNeighbor ResizeBicubic Resize Upsample CropAndResize "
           "ResizeBilinearV2 ResizeNearestNeighborV2 ResizeBilinearGrad ResizeNearestNeighborGrad "
           "ResizeBicubicGrad"),
    family="interpolation", source="bilinear 7 an output, bicubic 35, nearest none")  # fmt: skip
def resize(call: OpCall) -> Cost:
    """The taps of each output."""
    x, out = need(call, 0, "input"), output(call)
    if out is None:
        raise CannotKnow("the trace has no outputs")
    mode = str(call.param("mode", call.name)).lower()
    each = 35 if "cubic" in mode else 0 if "nearest" in mode else 7
    if "Grad" in call.name:  # a product and a sum for each tap of each gradient; nearest adds alone
        return cost([x], [out], vector={35: 32, 0: 1, 7: 8}[each] * numel(x), dtype=x.dtype)
    return cost([x], [out], vector=each * max(numel(out), 0), dtype=x.dtype)


@op("RsqrtGrad", "SqrtGrad", "ReciprocalGrad", "InvGrad", "AbsGrad",
    family="elementwise", source="rsqrt 4 an element (cube 2, scale, product), root 2, reciprocal 3")  # fmt: skip
def root_grad(call: OpCall) -> Cost:
    """−½·y³·dy, ½·dy/y, −y²·dy."""
    y = need(call, 0, "result")
    each = {"RsqrtGrad": 4, "SqrtGrad": 2, "ReciprocalGrad": 3, "InvGrad": 3}.get(call.name, 1)
    return cost([*tensors(call)[:2]], [output(call) or y], vector=each * numel(y), dtype=y.dtype)


@op("BiasGelu", "FastGelu", "BiasSplitGelu", "RotaryEmbedding", "BiasDropout",
    family="activation", source="bias 1 and GELU 5 an element (tanh form 8); rotary 3")  # fmt: skip
def fused_activation(call: OpCall) -> Cost:
    """ONNX Runtime's fusions of an addition and an activation."""
    x = need(call, 0, "input")
    each = {"BiasGelu": 6, "FastGelu": 9, "BiasSplitGelu": 7, "RotaryEmbedding": 3}.get(
        call.name, 3
    )
    out = output(call) or x
    return cost([*tensors(call)], [out], vector=each * numel(out), dtype=x.dtype)
