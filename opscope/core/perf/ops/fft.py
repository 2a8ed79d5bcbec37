"""Fourier transforms: 5·N·log2 N FLOPs per complex transform of N points, half for a real one."""

from __future__ import annotations

from math import log2

from opscope.core.perf.registry import CannotKnow, Cost, op, variant, words
from opscope.core.perf.shapes import (
    as_ints,
    axes,
    cost,
    need,
    need_output,
    output,
    product,
    sizes,
)
from opscope.core.schema import COMPLEX, OpCall, TensorSpec

_NAMES = words(
    "_fft_c2c _fft_r2c _fft_c2r fft_fft fft_ifft fft_rfft fft_irfft fft_hfft fft_ihfft fft_fft2 "
    "fft_ifft2 fft_rfft2 fft_irfft2 fft_fftn fft_ifftn fft_rfftn fft_irfftn fft_hfft2 fft_hfftn "
    "fft_ihfft2 fft_ihfftn"
)


def transform_flops(batch: int, points: int, real: bool) -> int:
    """Return 5·N·log2 N FLOP per transform, rounded; half for real input.

    The formula is van Loan's (1992) and FFTW's own figure of merit.
    """
    flops = batch * 5 * points * log2(points) if points > 1 else 0
    return round(flops / 2 if real else flops)


@op(
    *(f"aten::{name}" for name in _NAMES),
    family="fft",
    source="5·N·log2 N per complex transform, half for a real one (FFTW benchmark convention)",
    variants={
        "real": "*r2c *c2r *rfft* *hfft*",
        "bare": "aten::_fft_*",
        "to_complex": "aten::_fft_r2c *_rfft*",
        "to_real": "aten::_fft_c2r *_irfft*",
        "bare_to_real": "aten::_fft_c2r",
        "over_two": "*2",
        "over_all": "*n",
    },
)
def fft(call: OpCall) -> Cost:
    """One transform over all transformed dimensions; the other dimensions are the batch."""
    x = need(call, 0, "input")
    out = output(call)
    # the real side of a real transform is the longer one
    if out is None and variant(call, "bare_to_real"):
        last = as_ints(call.param("last_dim_size"))
        over = as_ints(call.param("dim"))
        if last is not None and over and sizes(x):
            grown = list(sizes(x))
            grown[axes(over, len(grown))[-1]] = last[0]
            out = TensorSpec(_PLAIN.get(x.dtype, "?"), tuple(grown))
    shape = sizes(out) if out is not None and variant(call, "bare_to_real") else sizes(x)
    dim = as_ints(call.param("dim"))
    if dim is None:
        if variant(call, "bare"):
            raise CannotKnow("the trace does not record the transformed dimensions")
        dim = (
            (-2, -1) if variant(call, "over_two") else None if variant(call, "over_all") else (-1,)
        )
    over = axes(dim, len(shape))
    points = product(shape[d] for d in over)
    batch = product(shape) // max(points, 1)
    flops = transform_flops(batch, points, variant(call, "real"))
    if out is None:
        out = _result(call, x, over)
    return cost([x], [out], vector=flops, dtype=x.dtype)


_COMPLEX = {"f64": "c128", "f32": "c64", "f16": "c32"}
_PLAIN = {wide: narrow for narrow, wide in _COMPLEX.items()}


def _result(call: OpCall, x: TensorSpec, over: tuple[int, ...]) -> TensorSpec:
    shape = list(sizes(x))
    if variant(call, "to_complex"):
        if shape and call.param("onesided") is not False:
            shape[over[-1]] = shape[over[-1]] // 2 + 1
        return TensorSpec(_COMPLEX.get(x.dtype, "?"), tuple(shape))
    if variant(call, "to_real"):
        if shape:
            shape[over[-1]] = 2 * (shape[over[-1]] - 1)
        return TensorSpec(_PLAIN.get(x.dtype, "?"), tuple(shape))
    return TensorSpec(_COMPLEX.get(x.dtype, x.dtype), tuple(shape))


@op(
    "aten::stft",
    "aten::istft",
    family="fft",
    source="a windowed transform per frame",
    variants={"inverse": "aten::istft"},
)
def stft(call: OpCall) -> Cost:
    """A product with the window and a real transform of n_fft points, per frame."""
    x = need(call, 0, "input")
    points = as_ints(call.param("n_fft"))
    if points is None:
        raise CannotKnow("the trace does not record n_fft")
    out = need_output(call, "the trace does not record the number of frames")
    shape = sizes(x) if variant(call, "inverse") else sizes(out)
    bins = points[0] // 2 + 1 if call.param("onesided", True) is not False else points[0]
    frames = product(shape) // max(bins, 1)
    if out.dtype not in COMPLEX and not variant(call, "inverse"):
        frames //= 2
    flops = transform_flops(frames, points[0], real=True) + frames * points[0]
    return cost([x], [out], vector=flops, dtype=x.dtype)
