"""Interpolation and sampling: FLOPs over the taps of each output element, with given weights.

Nearest 0; linear 3 (two products, one sum), bilinear 7, trilinear 15, bicubic 35 (four rows of four
taps, then one of four), Lanczos 83 (six rows of six taps, then one of six: 7·11 + 6).
"""

from __future__ import annotations

from opscope.core.perf.registry import CannotKnow, Cost, op, variant
from opscope.core.perf.shapes import (
    NO_SIZE,
    cost,
    ints_param,
    need,
    numel,
    output,
    product,
    sizes,
    span,
    spread,
)
from opscope.core.schema import OpCall, TensorSpec

TAPS = {
    "nearest": 0,
    "linear1d": 3,
    "bilinear2d": 7,
    "trilinear3d": 15,
    "bicubic2d": 35,
    "lanczos2d": 83,
}
#: The same by the names that torch.nn.functional.interpolate has for them.
MODES = {
    "nearest": 0,
    "nearest-exact": 0,
    "linear": 3,
    "bilinear": 7,
    "trilinear": 15,
    "bicubic": 35,
    "lanczos": 83,
}
_NAMES = (
    *(f"upsample_nearest{n}d" for n in "123"),
    *(f"_upsample_nearest_exact{n}d" for n in "123"),
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
    "_upsample_lanczos2d_aa",
)
_KINDS = {kind: f"*{kind}*" for kind in TAPS}


def _each(call: OpCall) -> int:
    """The FLOPs per output element, by the kind that the op is registered with."""
    return next(flops for kind, flops in TAPS.items() if variant(call, kind))


@op(*(f"aten::{name}" for name in _NAMES), family="interpolation",
    source="FLOPs per output element: opscope.core.perf.ops.interpolation.TAPS",
    variants={**_KINDS, "antialias": "*_aa*"})  # fmt: skip
def upsample(call: OpCall) -> Cost:
    """TAPS' FLOPs per output element."""
    x = need(call, 0, "input")
    return _resize(call, x, _each(call))


def _resize(call: OpCall, x: TensorSpec, each: int) -> Cost:
    out = output(call)
    shape = sizes(x)
    size = ints_param(call, "output_size") or ints_param(call, "size")
    if out is None and size is not None:
        rank = len(shape) - 2
        out = TensorSpec(x.dtype, (*shape[:2], *spread(size, rank, 1)))
    factors = call.param("scale_factors", call.param("scale_factor"))
    if out is None and isinstance(factors, (int, float, tuple)) and not isinstance(factors, bool):
        scale = factors if isinstance(factors, tuple) else (factors,) * (len(shape) - 2)
        if len(scale) == len(shape) - 2 and all(isinstance(f, (int, float)) for f in scale):
            by = zip(shape[2:], scale, strict=True)
            grown = [int(n * float(f)) for n, f in by]  # type: ignore[arg-type]
            out = TensorSpec(x.dtype, (*shape[:2], *grown))
    if out is None:
        raise CannotKnow("the trace does not record the output's size")
    if variant(call, "antialias") or call.param("antialias") is True:
        each *= _shrunk(shape, sizes(out))
    if each == 0:
        return cost([span(x, min(numel(x), numel(out)))], [out])
    return cost([x], [out], vector=each * numel(out), dtype=x.dtype)


def _shrunk(large: tuple[int, ...], small: tuple[int, ...]) -> int:
    """By how much antialiasing multiplies the taps: the scale, where the image shrinks."""
    return product(max(a // max(b, 1), 1) for a, b in zip(large[2:], small[2:], strict=True))


@op(
    "aten::interpolate",
    "aten::upsample",
    family="interpolation",
    source="FLOPs per output element, by the mode",
)
def interpolate(call: OpCall) -> Cost:
    """torch.nn.functional.interpolate; the mode is a parameter, nearest by default."""
    x = need(call, 0, "input")
    mode = call.param("mode", "nearest")
    if mode == "area":
        raise CannotKnow("area interpolation runs adaptive pooling, an op with its own cost")
    if mode not in MODES:
        raise CannotKnow(f"the mode of interpolation is not known: {mode}")
    return _resize(call, x, MODES[str(mode)])


@op(*(f"aten::{name}_backward" for name in _NAMES), family="interpolation",
    source="a product and a sum for each tap of each output gradient; nearest a sum",
    variants={**_KINDS, "antialias": "*_aa*"})  # fmt: skip
def upsample_backward(call: OpCall) -> Cost:
    """Spread each gradient over its taps: a product and an addition per tap; nearest only adds."""
    grad = need(call, 0, "gradient")
    taps = {0: 1, 3: 4, 7: 8, 15: 16, 35: 32, 83: 72}[_each(call)]
    out = output(call)
    size = ints_param(call, "input_size")
    if out is None and size is not None:
        out = TensorSpec(grad.dtype, size)
    if variant(call, "antialias"):
        if out is None:
            raise CannotKnow("the trace does not record the size of the input")
        taps *= _shrunk(sizes(out), sizes(grad))
    return cost(
        [grad],
        None if out is None else [out],
        vector=taps * numel(grad),
        dtype=grad.dtype,
        reason="the trace does not record the size of the input",
    )


@op(
    "aten::grid_sampler",
    "aten::grid_sampler_2d",
    "aten::grid_sampler_3d",
    "aten::cudnn_grid_sampler",
    "aten::_grid_sampler_2d_cpu_fallback",
    "aten::grid_sample",
    family="interpolation",
    source="bilinear 7 (trilinear 15) per output, and the weights of each point",
)
def grid_sample(call: OpCall) -> Cost:
    """7 FLOPs per channel and point in 2-D (15 in 3-D), and 14 (28) for each point's weights."""
    x, grid = need(call, 0, "input"), need(call, 1, "grid")
    shape, where = sizes(x), sizes(grid)
    flat = len(where) == 4
    points = product(where[:-1])
    channels = shape[1]
    mode = call.param("interpolation_mode", call.param("mode", 0))
    each = (
        0
        if mode in (1, "nearest")
        else 35
        if mode in (2, "bicubic", "cubic")
        else 7
        if flat
        else 15
    )
    out = output(call) or TensorSpec(x.dtype, (shape[0], channels, *where[1:-1]))
    flops = each * points * channels + (14 if flat else 28) * points
    return cost([x, grid], [out], vector=flops, dtype=x.dtype)


@op("aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward",
    "aten::_grid_sampler_2d_cpu_fallback_backward",
    "aten::cudnn_grid_sampler_backward", family="interpolation",
    source="2 per tap to the input and 2 to the grid: four taps (3-D eight, bicubic 16)",
    variants={"3d": "aten::grid_sampler_3d_backward",
              "gradient_last": "aten::cudnn_grid_sampler_backward"})  # fmt: skip
def grid_sample_backward(call: OpCall) -> Cost:
    """A product and an addition per tap for the input, and as many for the grid."""
    grad, x, grid = (need(call, n, "operand") for n in range(3))
    if variant(call, "gradient_last"):
        x, grid, grad = grad, x, grid
    mode = call.param("interpolation_mode")
    nearest = mode == 1
    taps = 1 if nearest else 8 if variant(call, "3d") else 16 if mode == 2 else 4
    mask = call.param("output_mask")
    wanted = mask if isinstance(mask, tuple) and len(mask) == 2 else (True, True)
    parts = 2 * bool(wanted[0]) + 2 * (bool(wanted[1]) and not nearest)
    writes = [t for t, asked in ((x, wanted[0]), (grid, wanted[1])) if asked]
    return cost([grad, x, grid], writes, vector=parts * taps * numel(grad), dtype=grad.dtype)


@op("aten::affine_grid_generator_backward", "aten::cudnn_affine_grid_generator_backward",
    family="gemm", source="2 per multiply-add of [d, points] by [points, d + 1]")  # fmt: skip
def affine_grid_backward(call: OpCall) -> Cost:
    """Multiply each point's gradient by the point's coordinates, and add into the matrix."""
    grad = need(call, 0, "gradient")
    shape = sizes(grad)
    if len(shape) < 4:
        raise CannotKnow(f"the shape is not a grid gradient's: {list(shape)}")
    dims = shape[-1]
    out = output(call) or TensorSpec(grad.dtype, (shape[0], dims, dims + 1))
    return cost([grad], [out], matrix=2 * numel(grad) * (dims + 1), dtype=grad.dtype)


@op("aten::affine_grid_generator", "aten::affine_grid", "aten::cudnn_affine_grid_generator",
    family="gemm",
    source="2 per multiply-add of [points, d + 1] by [d + 1, d]")  # fmt: skip
def affine_grid(call: OpCall) -> Cost:
    """Multiply each point of the grid by the affine matrix."""
    theta = need(call, 0, "theta")
    size = ints_param(call, "size")
    if size is None:
        raise CannotKnow(NO_SIZE)
    dims = len(size) - 2
    points = size[0] * product(size[2:])
    out = output(call) or TensorSpec(theta.dtype, (size[0], *size[2:], dims))
    return cost([theta], [out], matrix=2 * points * (dims + 1) * dims, dtype=theta.dtype)
