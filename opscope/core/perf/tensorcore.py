"""Decide whether an op could use Tensor Cores, and whether a given call can.

*Eligible* has DLProf's meaning: this kind of op has Tensor Core kernels for some dtype. *Ready* is about
one call: its dtype fits the generation of the device and its sizes have the alignment that the library
needs. AMD's Matrix Cores are included. ``kernel_names`` decides whether a kernel used them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from opscope.core.schema import DTYPE_BITS, FLOATS, OpCall, TensorSpec

from .layouts import weights_last
from .registry import CannotKnow, Entry, lookup, variant, word_of
from .shapes import NO_SHAPES, output, sizes, tensors

#: Families that Tensor Cores can compute with some dtype.
MATRIX_FAMILIES: Final = frozenset({"gemm", "conv", "attention", "recurrent"})
#: Families in which no op contains a matrix product, however it is computed.
WITHOUT_PRODUCTS: Final = frozenset(
    {"activation", "allocation", "communication", "copy", "dropout", "elementwise", "embedding"}
    | {"fill", "index", "interpolation", "loss", "norm", "optimizer", "pooling", "query", "random"}
    | {"reduction", "scan", "search", "softmax", "sort", "view"}
)

#: Lowest compute capability whose Tensor Cores support a dtype (CUDA C++ Programming Guide, "Warp
#: matrix functions", and the architecture white papers). Only data-centre parts support fp64.
FIRST_CC: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        "f16": (7, 0),
        "i8": (7, 2),
        "u8": (7, 2),
        "i4": (7, 5),
        "u4": (7, 5),
        "bf16": (8, 0),
        "tf32": (8, 0),
        "f32": (8, 0),  # as TF32, where that is allowed
        "f64": (8, 0),
        "c64": (8, 0),
        "f8e4m3fn": (8, 9),
        "f8e5m2": (8, 9),
        "f8e8m0fnu": (10, 0),
        "f6e2m3fn": (10, 0),
        "f6e3m2fn": (10, 0),
        "f4e2m1": (10, 0),
    }
)
_FP64_PARTS: Final = frozenset({(8, 0), (9, 0), (10, 0)})
#: Dtypes that AMD's Matrix Cores support, by target (ROCm, "Data types and precision support").
_AMD_FIRST: Final = frozenset({"f16", "bf16", "f32", "i8", "u8"})
AMD: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "gfx908": _AMD_FIRST,
        "gfx90a": _AMD_FIRST | {"f64"},
        "gfx942": _AMD_FIRST | {"f64", "tf32", "f8e4m3fnuz", "f8e5m2fnuz"},
        "gfx950": _AMD_FIRST
        | {"f64", "f8e4m3fn", "f8e5m2", "f8e8m0fnu", "f6e2m3fn", "f6e3m2fn", "f4e2m1"},
    }
)
#: The matrix units of a device: a compute capability, an AMD target, ``NO_UNITS``, or None if unknown.
Units: TypeAlias = "tuple[int, int] | str | None"
#: The value for a device without matrix units (a Pascal part, a GTX 16, a CPU without AMX).
NO_UNITS: Final = "none"
#: A dimension's size in bytes must be a multiple of this (cuBLAS before 11 requires it, later versions are
#: faster with it): https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication
ALIGNMENT_BYTES: Final = 16
#: Element sizes in bits, with the multiple of elements that every version of cuBLASLt requires: 4 elements
#: for int8 kernels, 16 bytes for fp8 and fp4 kernels (cuBLAS documentation, cublasLtMatmul).
_ALWAYS: Final[Mapping[int, int]] = MappingProxyType({8: 4, 6: 16, 4: 32})
_FP8_STEP: Final = 16
#: A product of fewer multiply-adds finishes before a Tensor Core kernel has started.
TINY: Final = 16 * 16 * 16
_SPARSE: Final = (
    "an operand is sparse: the use of Tensor Cores depends on the library and the sparsity pattern"
)

# ---------------------------------------------------------------------------------- ops


def eligible(entry: Entry | None) -> bool:
    """Whether the op could use Tensor Cores with some dtype (DLProf's meaning)."""
    return entry is not None and entry.family in MATRIX_FAMILIES


@dataclass(frozen=True, slots=True)
class Target:
    """What a call runs on: the device's matrix units, the cuBLAS version, and whether TF32 is allowed.

    A field is None if the trace does not record it.
    """

    units: Units = None
    cublas: tuple[int, ...] | None = None
    tf32: bool | None = None


def ready(call: OpCall, target: Target = Target()) -> tuple[bool | None, str | None]:
    """Return whether the call can use Tensor Cores and, if it cannot, the reason.

    Return (None, reason) if that depends on something unknown.
    """
    units = target.units
    if units == NO_UNITS:
        return False, "the device has no Tensor Cores"
    operands = _operands(call)
    if len(operands) < 2:
        return None, NO_SHAPES
    if any(t.is_sparse for t in operands[:2]):
        return None, _SPARSE
    dtypes = {t.dtype for t in operands[:2]}
    if "?" in dtypes:
        return None, "the trace gives sizes without element types"
    wide = max(dtypes, key=lambda d: DTYPE_BITS.get(d, 0))
    why = dtype_reason(wide, units) or one_channel_reason(call, operands)
    if why is not None:
        return False, why
    if (misaligned := required_alignment_reason(call, operands, wide, target)) is not None:
        return False, misaligned
    if wide != "f32" or isinstance(units, str):
        return True, None
    allowed = call.param("allow_tf32", target.tf32)
    if allowed is False:
        return False, "TF32 is off"
    if allowed is None:
        return (
            None,
            "f32 uses Tensor Cores only if TF32 is allowed, which the trace does not record",
        )
    if units is None:
        return (
            None,
            "f32 uses Tensor Cores from compute capability 8.0 on, and the device is not known",
        )
    return True, None


def dtype_reason(dtype: str, units: Units) -> str | None:
    """Return the reason why matrix units (of this device, if known) do not support the dtype, or None."""
    if isinstance(units, str):
        taken = AMD.get(units)
        if taken is None or dtype in taken:
            return None
        return f"{dtype} has no matrix instruction on {units}"
    first = FIRST_CC.get(dtype)
    if first is None:
        return f"{dtype} has no Tensor Core instruction"
    if units is None:
        return None
    if dtype in ("i4", "u4") and units >= (9, 0):
        return f"{dtype} has no Tensor Core instruction from compute capability 9.0"
    if dtype == "f64" and units not in _FP64_PARTS:
        return (
            f"f64 has no Tensor Cores of useful speed at compute capability {units[0]}.{units[1]}"
        )
    if units < first:
        shown = "f32 (as TF32)" if dtype == "f32" else dtype
        return f"{shown} needs compute capability {first[0]}.{first[1]}, the device has {units[0]}.{units[1]}"
    return None


def one_channel_reason(call: OpCall, operands: list[TensorSpec]) -> str | None:
    """Return the reason if the call is a depthwise convolution (one input channel per group), or None."""
    entry = lookup(call.name)
    weight = operands[1].shape
    if entry is None or entry.family != "conv" or len(weight) < 3:
        return None
    groups = call.param("groups")
    if isinstance(groups, int) and groups > 1 and weight[1] == 1:
        return "depthwise: one input channel per group, which makes no matrix product"
    return None


def required_alignment_reason(
    call: OpCall, operands: list[TensorSpec], dtype: str, target: Target
) -> str | None:
    """Return which dimension's size rules out Tensor Cores, not one that only makes them slower, or None.

    fp8, fp4 and int8 kernels need their multiples in every version; fp16 and the rest only in cuBLAS
    before 11. That is assumed on Volta unless the trace records the version (Ampere needs 11).
    """
    bits = DTYPE_BITS.get(dtype)
    if isinstance(target.units, str) or not bits:
        return None
    if bits in _ALWAYS:
        step = _FP8_STEP if dtype in FLOATS and bits == 8 else _ALWAYS[bits]
        misaligned = _misaligned(call, operands, step, free=("M",))
        if misaligned is not None:
            return misaligned
    volta = target.units is not None and target.units < (7, 5)
    old = target.cublas < (11,) if target.cublas is not None else volta
    return alignment_reason(call, operands, dtype) if old else None


def unused_reason(call: OpCall, units: Units = None, flops: int | None = None) -> str | None:
    """Return the likeliest reason why no kernel of an eligible call used Tensor Cores.

    In order: no matrix units, dtype, a depthwise convolution, TF32 recorded as off, a vector, a size that
    is not a multiple, a tiny problem, TF32, layout. None if nothing in the call explains it. ``flops``:
    the call's matrix FLOPs, if already known.
    """
    if units == NO_UNITS:
        return "the device has no Tensor Cores"
    operands = _operands(call)
    if len(operands) < 2:
        return None
    if any(t.is_sparse for t in operands[:2]):
        return _SPARSE
    wide = max((t.dtype for t in operands[:2]), key=lambda d: DTYPE_BITS.get(d, 0))
    if wide == "?":
        return None
    why = dtype_reason(wide, units) or one_channel_reason(call, operands)
    if why is not None:
        return why
    if call.param("allow_tf32") is False and wide == "f32":
        return "TF32 is off"
    dimensions = _dimensions(call, operands)
    if any(size == 1 for label, size in dimensions if label in ("M", "N")):
        return "a matrix-vector product, which gains nothing from Tensor Cores"
    misaligned = alignment_reason(call, operands, wide)
    if misaligned:
        return misaligned
    entry = lookup(call.name)
    if flops is None and entry is not None:
        flops = _flops(entry, call)
    if flops is not None and flops <= 2 * TINY:
        return "a tiny problem: the library prefers a kernel without Tensor Cores"
    if wide == "f32" and not isinstance(units, str):
        return "TF32 is off, or the library chose a kernel without Tensor Cores"
    if entry is not None and entry.family == "conv":
        return "layout: the library has no Tensor Core kernel for this order of dimensions"
    return None


def _flops(entry: Entry, call: OpCall) -> int | None:
    try:
        return entry.model(call).matrix_flops
    except (CannotKnow, ValueError, IndexError, ZeroDivisionError, OverflowError):
        return None  # shapes that do not fit the model give no reason


def _operands(call: OpCall) -> list[TensorSpec]:
    """Return the factors of the product (for attention, three tensors) without the addends."""
    operands = tensors(call)
    word = word_of(call.name)
    if re.match(r"_?(?:addmm|baddbmm|addbmm|addmv|addr)", word):
        operands = operands[1:]
    if "backward" in word and len(operands) > 2 and "conv" not in word:
        operands = operands[1:]
    return operands


def alignment_reason(call: OpCall, operands: list[TensorSpec], dtype: str) -> str | None:
    """Return which dimension's bytes are not a multiple of 16 (``"K = 30 is not a multiple of 8"``)."""
    bits = DTYPE_BITS.get(dtype)
    if not bits:
        return None
    return _misaligned(call, operands, max(ALIGNMENT_BYTES * 8 // bits, 1))


def _misaligned(
    call: OpCall, operands: list[TensorSpec], step: int, free: tuple[str, ...] = ()
) -> str | None:
    for label, size in _dimensions(call, operands):
        if isinstance(size, int) and size % step and label not in free:
            return f"{label} = {size} is not a multiple of {step}"
    return None


def _dimensions(call: OpCall, operands: list[TensorSpec]) -> list[tuple[str, object]]:
    entry = lookup(call.name)
    family = entry.family if entry else None
    a, b = operands[0].shape, operands[1].shape
    if family == "conv":
        inside, out = _channels(call, operands[0], operands[1])
        return [] if inside is None else [("input channels", inside), ("output channels", out)]
    if family == "attention":
        return [("head size", a[-1])] if a else []
    if len(a) < 2 or len(b) < 2:
        return []
    if "linear" in call.name:
        return [("K", a[-1]), ("N", b[0])]
    return [("M", a[-2]), ("K", a[-1]), ("N", b[-1])]


def _channels(call: OpCall, x: TensorSpec, w: TensorSpec) -> tuple[object, object]:
    """Return the input and output channels of a convolution's weights; None if their order is not known.

    They are [O, I, k…] in PyTorch, ONNX and MindSpore, [k…, I, O] in TensorFlow; XLA has ``dim_labels``.
    """
    if len(w.shape) < 3:
        return None, None
    labels = str(call.param("dim_labels", "")).partition("_")[2].partition("->")[0]
    if len(labels) == len(w.shape) and "i" in labels and "o" in labels:
        return w.shape[labels.index("i")], w.shape[labels.index("o")]
    if variant(call, "tensorflow"):
        try:
            xs, ws = sizes(x), sizes(w)
        except CannotKnow:
            return None, None
        if weights_last(call, xs, ws, output(call)):
            return ws[-2], ws[-1]
    return w.shape[1], w.shape[0]
