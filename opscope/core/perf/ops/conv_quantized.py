"""Quantised convolutions; a packed weight hides the size of its window."""

from __future__ import annotations

from opscope.core.perf.registry import CannotKnow, Cost, op, variant, words
from opscope.core.perf.shapes import (
    NO_OUTPUTS,
    cost,
    distinct_tensors,
    need,
    numel,
    output,
    product,
    sizes,
    tensors,
)
from opscope.core.schema import OpCall

_CONV = words(
    """
    quantized::conv1d quantized::conv1d_relu quantized::conv1d_dynamic quantized::conv2d
    quantized::conv2d_relu quantized::conv2d_add quantized::conv2d_add_relu quantized::conv2d_dynamic
    quantized::conv3d quantized::conv3d_relu quantized::conv3d_dynamic quantized::conv_transpose1d
    quantized::conv_transpose1d_dynamic quantized::conv_transpose2d quantized::conv_transpose2d_dynamic
    quantized::conv_transpose3d quantized::conv_transpose3d_dynamic _quantized::conv2d
    _quantized::conv2d_relu _quantized::conv3d _quantized::conv3d_relu _quantized::conv_transpose1d
    _quantized::conv_transpose2d onednn::qconv_pointwise onednn::qconv1d_pointwise
    onednn::qconv2d_pointwise onednn::qconv3d_pointwise mkldnn_prepacked::conv2d_run
    """
)


@op(*_CONV, family="conv", source="2·results·(weights per output channel)",
    variants={"plain_weight": "onednn::*"})  # fmt: skip
def packed_conv(call: OpCall) -> Cost:
    """Known if the weight is a plain tensor; a packed one hides the size of its window."""
    x, out = need(call, 0, "input"), output(call)
    rank = len(sizes(x))
    w = next((t for t in tensors(call)[1:] if len(t.shape) == rank and rank > 2), None)
    if w is None or not variant(call, "plain_weight"):
        raise CannotKnow("the packed weight hides the size of its window")
    if out is None:
        raise CannotKnow(NO_OUTPUTS)
    return cost(
        distinct_tensors(call), [out], matrix=2 * numel(out) * product(sizes(w)[1:]), dtype=w.dtype
    )
