"""Read from a call's inputs the sizes of matrix products, of which Tensor Cores want multiples."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from opscope.core.perf.registry import lookup
from opscope.core.perf.shapes import tensors
from opscope.core.rangetext import RangeTextError, parse
from opscope.core.schema import DTYPE_BITS, OpCall, TensorSpec

#: Tensor Cores take multiples of these sizes in memory without loss: 16 bytes; on A100 and later 128 bytes
#: are best (https://docs.nvidia.com/deeplearning/ performance/dl-performance-matrix-multiplication, tensor
#: core requirements).
STEP_BYTES: Final = 16
WIDE_STEP_BYTES: Final = 128
#: A size is padded to the wide step where that adds at most this share.
_MOST_ADDED: Final = 1 / 8


class Product(NamedTuple):
    """A call's product: ``batch`` independent products of M×K by K×N; ``inner``: the sizes that lie in memory
    one element after the other, by name (K, N, M, ``input channels`` …)."""

    batch: int
    m: int
    n: int
    k: int
    inner: dict[str, int]


@lru_cache(maxsize=16_384)
def read(op: str, inputs: str, params: str | None) -> Product | None:
    """Return the sizes of a call; None if its inputs do not show them."""
    try:
        call = parse(f"x({inputs})" + (f" {{{params}}}" if params else ""))
    except RangeTextError:
        return None
    entry = lookup(op)
    if entry is None or entry.family not in ("gemm", "conv"):
        return None
    call = OpCall(op, call.inputs, None, call.params)
    specs = tensors(call)
    if any(not isinstance(size, int) for spec in specs for size in spec.shape):
        return None
    try:
        return _conv(call, specs) if entry.family == "conv" else _gemm(call, specs)
    except IndexError:
        return None


def _flag(call: OpCall, *keys: str) -> bool:
    return any(call.param(key) in (True, 1) for key in keys)


def _gemm(call: OpCall, specs: list[TensorSpec]) -> Product | None:
    word = re.split(r"[:.]+", call.name)[-1]
    if re.fullmatch(r"linear|Linear", word):
        a, b, swap = specs[0], specs[1], True
    elif re.fullmatch(r"addmm|baddbmm|_addmm_activation", word):
        a, b, swap = specs[1], specs[2], False
    elif re.fullmatch(r"mm|bmm|matmul|MatMul|BatchMatMul(?:V[23])?|_scaled_mm", word):
        a, b = specs[0], specs[1]
        swap = _flag(call, "transpose_b", "adj_y", "transpose_x2")
    else:
        return None
    if len(a.shape) < 2 or len(b.shape) < 2:
        return None
    m, k = _ints(a)[-2:]
    left_inner, right_inner = ("K", k), ("N", 0)
    if _flag(call, "transpose_a", "adj_x", "transpose_x1"):
        m, k = k, m
        left_inner = ("M", m)
    rows, n = _ints(b)[-2:]
    if swap:
        rows, n = n, rows
    if rows != k or any(spec.strides is not None for spec in (a, b)):
        return None  # the strides of views show where a row begins, but not the sizes
    right_inner = ("K", k) if swap else ("N", n)
    if _turn(a):
        left_inner = ("M", m) if left_inner[0] == "K" else ("K", k)
    if _turn(b):
        right_inner = ("N", n) if right_inner[0] == "K" else ("K", k)
    batch = 1
    for size in _ints(a)[:-2]:
        batch *= size
    if len(b.shape) == 2:  # every row of the batch is multiplied by the same matrix
        m, batch = m * batch, 1
    return Product(batch, m, n, k, dict([left_inner, right_inner, ("N", n)]))


def _conv(call: OpCall, specs: list[TensorSpec]) -> Product | None:
    """Return the channels of a convolution of PyTorch, whose sizes are in the order N, C, H, W."""
    if not call.name.startswith(("aten::", "torch.")) or _groups(call) != 1:
        return None
    shapes = [_ints(spec) for spec in specs]
    if "backward_weight" in call.name:
        out, inside = shapes[0][1], shapes[1][1]
    elif "backward_input" in call.name:
        out, inside = shapes[1][0], shapes[1][1]
    elif "backward" in call.name:
        out, inside = shapes[2][0], shapes[2][1]
    else:
        out, inside = shapes[1][0], shapes[1][1]
    if len(shapes[0]) < 3 or min(out, inside) < 1:
        return None
    return Product(1, 0, out, inside, {"input channels": inside, "output channels": out})


def _groups(call: OpCall) -> int:
    groups = call.param("groups")
    return groups if isinstance(groups, int) else 1


def _ints(tensor: TensorSpec) -> list[int]:
    return [size for size in tensor.shape if isinstance(size, int)]


def _turn(tensor: TensorSpec) -> bool:
    """Whether the second last dimension lies in memory one element after the other (a transposed view)."""
    order = tensor.minor_to_major
    return order is not None and order[0] == len(tensor.shape) - 2


def step(dtype: str) -> int:
    """Return the multiple of elements that Tensor Cores want: 8 for f16, 16 for int8 and fp8, 4 for f32."""
    return max(STEP_BYTES * 8 // DTYPE_BITS.get(dtype, 32), 1)


def padded(size: int, dtype: str) -> int:
    """Return the size to pad to: the next multiple of 128 bytes where that adds little, else of 16 bytes."""
    least = step(dtype)
    wide = least * WIDE_STEP_BYTES // STEP_BYTES
    far = -(-size // wide) * wide
    return far if far - size <= size * _MOST_ADDED else -(-size // least) * least


#: Names of kernels that hold the size of a block's part of the result, M×N in the library's order.
_TILES: Final = (
    r"tilesize(\d+)x(\d+)x",
    r"_MT(\d+)x(\d+)x",
    r"nvjet_[a-z]+_(\d+)x(\d+)_",
    r"gemm_(?:[a-z]+\d*_)*(\d+)x(\d+)_(?:\d+x\d+|[nt]{2}|ldg|sliced)",
)


@lru_cache(maxsize=16_384)
def tile(kernel: str) -> tuple[int, int] | None:
    """Return the size of a tile of the result from the kernel's name, in no known order; None if it has
    none."""
    for pattern in _TILES:
        match = re.search(pattern, kernel)
        if match and min(int(match[1]), int(match[2])) >= 8:
            return int(match[1]), int(match[2])
    return None


def wasted(m: int, n: int, sides: tuple[int, int]) -> float:
    """Return the share of the tiles' elements that lie outside an M×N result, the lower of both orders."""

    def outside(down: int, across: int) -> float:
        return 1 - m * n / (-(-m // down) * down * -(-n // across) * across)

    return min(outside(*sides), outside(*sides[::-1]))
