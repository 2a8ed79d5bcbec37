"""Pooling: the operations of each output's window, and of each output's gradient.

A window of k elements takes k − 1 comparisons (maximum), or k − 1 additions and one division (mean).
"""

from __future__ import annotations

from math import gcd

from opscope.core.perf.registry import CannotKnow, Cost, backward_of, op, variant
from opscope.core.perf.shapes import (
    cost,
    ints_param,
    need,
    numel,
    output,
    outputs,
    product,
    sizes,
    span,
    spread,
    tensors,
)
from opscope.core.perf.windows import out_size, windows
from opscope.core.schema import OpCall, TensorSpec


def _rank(name: str) -> int:
    for digit in "123":
        if f"{digit}d" in name or f"{digit}D" in name:
            return int(digit)
    raise CannotKnow("the op's name does not state the number of dimensions")


def pooled(call: OpCall, spatial: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, ...]:
    """Return the output's spatial sizes; with ceil_mode a last, partial window counts.

    A window that would start in the padding after the input does not count.
    """
    rank = len(kernel)
    stride = spread(ints_param(call, "stride") or kernel, rank, 1)
    pad = spread(ints_param(call, "padding"), rank, 0)
    dilation = spread(ints_param(call, "dilation"), rank, 1)
    out = []
    for n, k, s, p, d in zip(spatial, kernel, stride, pad, dilation, strict=True):
        if call.param("ceil_mode") is True:
            count = -(-(n + 2 * p - d * (k - 1) - 1) // max(s, 1)) + 1
            if (count - 1) * s >= n + p:
                count -= 1
            out.append(max(count, 0))
        else:
            out.append(out_size(n, k, s, 2 * p, d))
    return tuple(out)


def _window(call: OpCall, rank: int) -> tuple[int, ...]:
    kernel = ints_param(call, "kernel_size")
    if not kernel:
        raise CannotKnow("the trace does not record the size of the window")
    return spread(kernel, rank, 1)


_MAX = [
    f"aten::{name}"
    for n in "123"
    for name in (f"max_pool{n}d", f"max_pool{n}d_with_indices")
    if name != "max_pool1d_with_indices"
]


@op(
    *_MAX,
    "aten::max_pool1d_with_indices",
    "aten::mkldnn_max_pool2d",
    "aten::mkldnn_max_pool3d",
    *(f"aten::quantized_max_pool{n}d" for n in "123"),
    "quantized::max_pool1d",
    "quantized::max_pool2d",
    family="pooling",
    source="k − 1 comparisons per output (XLA counts the same, TensorFlow k)",
    variants={"with_indices": "*with_indices*"},
)
def max_pool(call: OpCall) -> Cost:
    """k − 1 comparisons per output."""
    return _pool(call, per_window=-1)


@op(
    *(f"aten::avg_pool{n}d" for n in "123"),
    *(f"aten::lp_pool{n}d" for n in "123"),
    family="pooling",
    source="k − 1 additions and a division per output; a power mean twice as many",
    variants={"lp_pool": "*lp_pool*"},
)
def avg_pool(call: OpCall) -> Cost:
    """k − 1 additions and one division per output; a power mean takes twice as many (powers, a root)."""
    if variant(call, "lp_pool"):
        single = _pool(call, per_window=0)
        return Cost(
            0,
            2 * single.vector_flops,
            single.bytes_read,
            single.bytes_written,
            {key: 2 * n for key, n in single.by_dtype.items()},
            single.bytes_reason,
        )
    return _pool(call, per_window=0)


def _pool(call: OpCall, per_window: int) -> Cost:
    x = need(call, 0, "input")
    rank, shape = _rank(call.name), sizes(x)
    spatial = shape[-rank:]
    kernel = _window(call, rank)
    stride = spread(ints_param(call, "stride") or kernel, rank, 1)
    out = output(call)
    if out is None:
        out = TensorSpec(x.dtype, (*shape[:-rank], *pooled(call, spatial, kernel)))
    # the input elements that the windows touch (a stride larger than the window skips some)
    plain = OpCall(
        call.name,
        params=(
            ("stride", stride),
            ("padding", ints_param(call, "padding")),
            ("dilation", ints_param(call, "dilation")),
        ),
    )
    _, seen = windows(plain, spatial, kernel)
    if call.param("ceil_mode") is True:
        seen = spatial
    flops = max(product(kernel) + per_window, 0) * numel(out)
    writes = [out]
    if variant(call, "with_indices"):
        writes.append(output(call, 1) or TensorSpec("i64", out.shape))
    touched = numel(x) // max(product(spatial), 1) * product(seen)
    return cost([span(x, touched)], writes, vector=flops, dtype=x.dtype)


@op(
    *(f"aten::max_pool{n}d_with_indices_backward" for n in "23"),
    "aten::adaptive_max_pool2d_backward",
    "aten::adaptive_max_pool3d_backward",
    "aten::fractional_max_pool2d_backward",
    "aten::fractional_max_pool3d_backward",
    "aten::max_pool2d_backward",
    "aten::mkldnn_max_pool2d_backward",
    "aten::mkldnn_max_pool3d_backward",
    family="pooling",
    source="an addition per output gradient",
    variants={"output_second": "aten::mkldnn_max_pool*_backward"},
)
def max_pool_backward(call: OpCall) -> Cost:
    """Add each gradient where its maximum was; the input itself is not read.

    oneDNN's operands are gradient, output, input; it keeps the positions of the maxima with the output, and
    they are not recorded.
    """
    grad = need(call, 0, "gradient")
    x = need(call, 2 if variant(call, "output_second") else 1, "input")
    indices = next((t for t in tensors(call)[2:] if t.dtype in ("i64", "i32")), None)
    return cost([grad, indices], [x], vector=numel(grad), dtype=grad.dtype)


@op(
    *(f"aten::avg_pool{n}d_backward" for n in "23"),
    family="pooling",
    source="an addition per window element, a division per window",
)
def avg_pool_backward(call: OpCall) -> Cost:
    """Divide each gradient once and add it to the k elements of its window."""
    grad, x = need(call, 0, "gradient"), need(call, 1, "input")
    kernel = _window(call, _rank(call.name))
    return cost([grad], [x], vector=(product(kernel) + 1) * numel(grad), dtype=grad.dtype)


def _adaptive_work(spatial: tuple[int, ...], out: tuple[int, ...]) -> int:
    """Return the elements read by all windows: window i is [⌊i·n/o⌋, ⌈(i+1)·n/o⌉) along each axis.

    Neighbours share one element at each of the o − 1 borders, except where i·n/o is an integer:
    n + o − gcd(n, o) elements.
    """
    return product(n + o - gcd(n, o) if n and o else 0 for n, o in zip(spatial, out, strict=True))


@op(
    *(f"aten::adaptive_avg_pool{n}d" for n in "123"),
    *(f"aten::_adaptive_avg_pool{n}d" for n in "23"),
    *(f"aten::adaptive_max_pool{n}d" for n in "123"),
    "aten::mkldnn_adaptive_avg_pool2d",
    family="pooling",
    source="every window's elements: additions and a division, or comparisons",
    variants={"max": "*max*"},
)
def adaptive_pool(call: OpCall) -> Cost:
    """One operation per element of each window; for a maximum one fewer per window."""
    x = need(call, 0, "input")
    rank, shape = _rank(call.name), sizes(x)
    spatial = shape[-rank:]
    recorded = output(call)
    size = ints_param(call, "output_size")
    if recorded is None and size is None:
        raise CannotKnow("the trace does not record the output's size")
    out = recorded or TensorSpec(x.dtype, (*shape[:-rank], *spread(size, rank, 1)))
    planes = product(shape[:-rank])
    work = planes * _adaptive_work(spatial, sizes(out)[-rank:])
    maximum = variant(call, "max")
    writes = [out]
    if maximum:
        writes.append(output(call, 1) or TensorSpec("i64", out.shape))
    flops = max(work - (numel(out) if maximum else 0), 0)
    return cost([x], writes, vector=flops, dtype=x.dtype)


@op(
    "aten::_adaptive_avg_pool2d_backward",
    "aten::_adaptive_avg_pool3d_backward",
    "aten::adaptive_avg_pool3d_backward",
    "aten::mkldnn_adaptive_avg_pool2d_backward",
    family="pooling",
    source="an addition per window element, a division per window",
)
def adaptive_avg_pool_backward(call: OpCall) -> Cost:
    """Divide each gradient once and add it to its window's elements."""
    grad, x = need(call, 0, "gradient"), need(call, 1, "input")
    rank = _rank(call.name)
    shape = sizes(x)
    work = product(shape[:-rank]) * _adaptive_work(shape[-rank:], sizes(grad)[-rank:])
    return cost([grad], [x], vector=work + numel(grad), dtype=grad.dtype)


@op(
    "aten::fractional_max_pool2d",
    "aten::fractional_max_pool3d",
    family="pooling",
    source="k − 1 comparisons per output",
)
def fractional_max_pool(call: OpCall) -> Cost:
    """Windows of a fixed size at random positions."""
    x = need(call, 0, "input")
    rank = _rank(call.name)
    size = ints_param(call, "output_size")
    out = output(call)
    if out is None:
        if size is None:
            raise CannotKnow("the trace does not record the output's size")
        out = TensorSpec(x.dtype, (*sizes(x)[:-rank], *spread(size, rank, 1)))
    work = (product(_window(call, rank)) - 1) * numel(out)
    writes = outputs(call) or [out, TensorSpec("i64", out.shape)]
    return cost([x], writes, vector=work, dtype=x.dtype)


@op(
    *(f"aten::max_unpool{n}d" for n in "123"),
    family="pooling",
    source="no arithmetic: values are put back to their positions",
)
def max_unpool(call: OpCall) -> Cost:
    """Scatter the values into zeros."""
    x, indices = need(call, 0, "input"), need(call, 1, "indices")
    size = ints_param(call, "output_size")
    out = output(call)
    if out is None and size is not None:
        lead = sizes(x)[: len(sizes(x)) - len(size)]
        out = TensorSpec(x.dtype, (*lead, *size))
    return cost(
        [x, indices],
        None if out is None else [out],
        reason="the trace does not record the output's size",
    )


@backward_of(*_MAX)
def max_pool_gradient(call: OpCall) -> tuple[Cost, Cost]:
    """One addition per output."""
    x = need(call, 0, "input")
    rank = _rank(call.name)
    out = output(call)
    if out is None:
        shape = sizes(x)
        out = TensorSpec(
            x.dtype, (*shape[:-rank], *pooled(call, shape[-rank:], _window(call, rank)))
        )
    indices = TensorSpec("i64", out.shape)
    return cost([out, indices], [x], vector=numel(out), dtype=x.dtype), Cost()
