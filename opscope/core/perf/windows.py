"""Count the windows of a convolution or pooling, and the input elements that they touch."""

from __future__ import annotations

from collections.abc import Sequence

from opscope.core.schema import OpCall

from .registry import CannotKnow
from .shapes import as_ints, ints_param, spread


def out_size(size: int, kernel: int, stride: int, pad: int, dilation: int) -> int:
    """Return the number of window positions along one dimension (``pad``: the sum of both ends)."""
    return max((size + pad - dilation * (kernel - 1) - 1) // max(stride, 1) + 1, 0)


def covered(size: int, out: int, kernel: int, stride: int, before: int, dilation: int) -> int:
    """Return how many of ``size`` elements the windows touch; ``before`` is the padding at the start."""
    if kernel >= stride and dilation == 1:
        low, high = -before, (out - 1) * stride + kernel - before
        return max(min(high, size) - max(low, 0), 0) if out else 0
    if out * kernel > 10_000_000 or kernel > 100_000:
        raise CannotKnow("the window is too large to count the elements that it touches")
    hit = bytearray(size)
    for tap in range(kernel):
        first = tap * dilation - before
        skip = 0 if first >= 0 else -(first // stride)
        start = first + skip * stride
        stop = min(first + (out - 1) * stride + 1, size)
        count = len(range(start, stop, stride))
        if count > 0:
            hit[start:stop:stride] = b"\x01" * count
    return sum(hit)


def padding_pairs(
    call: OpCall,
    in_dims: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> list[tuple[int, int]]:
    """Return the padding before and after each dimension, with ``"same"`` and ``"valid"`` resolved."""
    value = call.param("padding", call.param("pads"))
    rank = len(kernel)
    if isinstance(value, str):
        if value.lower() == "valid":
            return [(0, 0)] * rank
        out = []
        for size, k, s, d in zip(in_dims, kernel, stride, dilation, strict=True):
            total = max((-(-size // s) - 1) * s + d * (k - 1) + 1 - size, 0)
            out.append((total // 2, total - total // 2))
        return out
    pads = as_ints(value) or (0,)
    if len(pads) == 2 * rank and rank:  # ONNX: the starts of all dimensions, then the ends
        return list(zip(pads[:rank], pads[rank:], strict=True))
    return [(p, p) for p in spread(pads, rank, 0)]


def windows(
    call: OpCall, in_dims: tuple[int, ...], kernel: tuple[int, ...], transposed: bool = False
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the output size and the number of input positions touched, for each spatial dimension."""
    rank = len(kernel)
    stride = spread(ints_param(call, "stride"), rank, 1)
    dilation = spread(ints_param(call, "dilation"), rank, 1)
    if transposed:
        pads = [(p, p) for p in spread(ints_param(call, "padding"), rank, 0)]
        more = spread(ints_param(call, "output_padding"), rank, 0)
        out = tuple(
            (n - 1) * s - p[0] - p[1] + d * (k - 1) + 1 + o
            for n, s, p, d, k, o in zip(in_dims, stride, pads, dilation, kernel, more, strict=True)
        )
        return out, in_dims
    pairs = padding_pairs(call, in_dims, kernel, stride, dilation)
    out = tuple(
        out_size(n, k, s, sum(p), d)
        for n, k, s, p, d in zip(in_dims, kernel, stride, pairs, dilation, strict=True)
    )
    touched = tuple(
        covered(n, o, k, s, p[0], d)
        for n, o, k, s, p, d in zip(in_dims, out, kernel, stride, pairs, dilation, strict=True)
    )
    return out, touched
