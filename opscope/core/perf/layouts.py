"""The layouts of a convolution node's data and weights."""

from __future__ import annotations

from opscope.core.schema import OpCall, TensorSpec

from .registry import variant


def channels_last(
    call: OpCall, x: tuple[int, ...], w: tuple[int, ...], out: TensorSpec | None
) -> bool:
    """Whether data is [N, …, C]: by the layout parameter, else by the variant or the weights."""
    layout = call.param("data_format", call.param("format"))
    if isinstance(layout, str) and layout:
        return layout.endswith("C")
    return variant(call, "nhwc") or weights_last(call, x, w, out)


def weights_last(
    call: OpCall, x: tuple[int, ...], w: tuple[int, ...], out: TensorSpec | None
) -> bool:
    """Whether weights are [k…, I, O] (TensorFlow's order in every data layout) and not [O, I, k…].

    ONNX and MindSpore (``pad_mode``) have the second order. If frameworks share the op's name, the channels
    of data and result (``out``, or its gradient) decide; if both orders fit, it is TensorFlow's.
    """
    if call.param("pad_mode") is not None or call.param("kernel_shape") is not None:
        return False
    if not variant(call, "tensorflow"):
        return False
    channels = (x[-1], x[1]) if len(x) > 1 else (1, 1)
    results = (out.shape[-1], out.shape[1]) if out is not None and len(out.shape) > 1 else None
    depthwise = variant(call, "depthwise")  # results per channel: the channel multiplier
    first, last = (
        any(c % max(inner, 1) == 0 for c in channels) and (results is None or outer in results)
        for inner, outer in ((w[1], w[0]), (w[-2], w[-1] * (w[-2] if depthwise else 1)))
    )
    return last or not first
