"""Cost models of image nodes: pooling, filters, resizing, regions and colours."""

from __future__ import annotations

from opscope.core.perf.registry import CannotKnow, Cost, op, variant, words
from opscope.core.perf.shapes import (
    NO_OUTPUTS,
    NO_SHAPES,
    as_ints,
    cost,
    distinct_tensors,
    need,
    need_output,
    numel,
    output,
    outputs,
    product,
    sizes,
    tensors,
)
from opscope.core.schema import OpCall, TensorSpec


def _window(call: OpCall) -> int:
    for key in ("ksize", "kernel_shape", "kernel_size"):
        value = as_ints(call.param(key))
        if value:
            return product(value)
    raise CannotKnow("the trace does not record the size of the window")


@op(*words("MaxPool MaxPoolV2 MaxPool3D MaxPoolWithArgmax AvgPool AvgPool3D AveragePool LpPool"),
    family="pooling", source="per output k − 1 comparisons, or k − 1 additions and a division",
    variants={"max": "*Max*"})  # fmt: skip
def pool(call: OpCall) -> Cost:
    """The operations on the window of each output."""
    x, out = need(call, 0, "input"), need_output(call)
    each = _window(call) - (1 if variant(call, "max") else 0)
    return cost([x], outputs(call) or [out], vector=each * numel(out), dtype=x.dtype)


@op(
    "GlobalAveragePool",
    "GlobalMaxPool",
    family="pooling",
    source="inputs, or inputs − outputs",
    variants={"max": "GlobalMaxPool"},
)
def global_pool(call: OpCall) -> Cost:
    """One operation for each position of a channel; a maximum needs one less per channel."""
    x = need(call, 0, "input")
    shape = sizes(x)
    out = output(call) or TensorSpec(x.dtype, (*shape[:2], *(1,) * (len(shape) - 2)))
    flops = max(numel(x) - (numel(out) if variant(call, "max") else 0), 0)
    return cost([x], [out], vector=flops, dtype=x.dtype)


@op(*words("MaxPoolGrad MaxPoolGradV2 MaxPool3DGrad MaxPoolGradWithArgmax AvgPoolGrad AvgPool3DGrad"),
    family="pooling",
    source="1 addition per output gradient, k comparisons more without an index; a mean k + 1",
    variants={"argmax": "MaxPoolGradWithArgmax"})  # fmt: skip
def pool_grad(call: OpCall) -> Cost:
    """The gradient goes to the position of the maximum, or to the whole window.

    Without an index the maximum is searched again (TensorFlow's own profiler counts so).
    """
    operands = tensors(call)
    if not operands:
        raise CannotKnow(NO_SHAPES)
    grad = operands[-1] if not variant(call, "argmax") else operands[min(1, len(operands) - 1)]
    each = 1 if variant(call, "argmax") else _window(call) + 1
    out = outputs(call)
    return cost(operands, out, vector=each * numel(grad), dtype=grad.dtype,
                reason=NO_OUTPUTS)  # fmt: skip


@op("Dilation2D", "Dilation2DBackpropInput", "Dilation2DBackpropFilter", family="pooling",
    source="1 addition and 1 comparison per tap (TensorFlow's profiler: 2·k per output)",
    variants={"backprop": "Dilation2DBackpropInput Dilation2DBackpropFilter"})  # fmt: skip
def dilation(call: OpCall) -> Cost:
    """The largest sum of window and filter; a gradient searches it again and adds once."""
    x, w = need(call, 0, "input"), need(call, 1, "filter")
    taps = product(sizes(w)[:-1])
    operands, out = tensors(call), need_output(call)
    back = variant(call, "backprop") and len(operands) > 2
    windows = numel(operands[2]) if back else numel(out)
    flops = 2 * taps * windows + (windows if back else 0)
    return cost(distinct_tensors(call), [out], vector=flops, dtype=x.dtype)


@op(*words("ResizeBilinear ResizeNearestNeighbor ResizeBicubic Resize Upsample CropAndResize "
           "ResizeBilinearV2 ResizeNearestNeighborV2 ResizeBilinearGrad ResizeNearestNeighborGrad "
           "ResizeBicubicGrad"),
    family="interpolation", source="bilinear 7 per output, bicubic 35, nearest none",
    variants={"grad": "*Grad*"})  # fmt: skip
def resize(call: OpCall) -> Cost:
    """The operations on the taps of each output."""
    x, out = need(call, 0, "input"), need_output(call)
    mode = str(call.param("mode", call.name)).lower()
    each = 35 if "cubic" in mode else 0 if "nearest" in mode else 7
    # a product and a sum for each tap of each gradient; nearest only adds
    if variant(call, "grad"):
        return cost([x], [out], vector={35: 32, 0: 1, 7: 8}[each] * numel(x), dtype=x.dtype)
    return cost([x], [out], vector=each * max(numel(out), 0), dtype=x.dtype)


@op(
    "RoiAlign",
    "MaxRoiPool",
    family="interpolation",
    source="bilinear 7 per sample; a maximum per region",
)
def roi_align(call: OpCall) -> Cost:
    """``sampling_ratio``² samples per output, averaged; with 0 their number depends on the region's size."""
    x, out = need(call, 0, "input"), output(call)
    ratio = as_ints(call.param("sampling_ratio"))
    if out is None or not ratio or ratio[0] < 1 or call.name == "MaxRoiPool":
        raise CannotKnow("the number of elements in a region is data that no trace records")
    samples = ratio[0] ** 2
    flops = (7 + 1) * samples * numel(out)
    return cost(distinct_tensors(call), [out], vector=flops, dtype=x.dtype)


@op("AdjustContrast", "AdjustContrastv2", "RGBToHSV", "HSVToRGB", "AdjustHue", "AdjustSaturation",
    family="elementwise", source="contrast 4 per element; colour space conversion 6; hue, saturation 13",
    variants={"contrast": "AdjustContrast AdjustContrastv2", "adjust": "*Adjust*"})  # fmt: skip
def colours(call: OpCall) -> Cost:
    """Contrast: mean 1, subtract, scale, add. Hue and saturation: to HSV, change, and back."""
    x = need(call, 0, "image")
    each = 4 if variant(call, "contrast") else 13 if variant(call, "adjust") else 6
    return cost([x], [output(call) or x], vector=each * numel(x), dtype=x.dtype)
