"""Tensor Cores: could this kind of op use them, and can this call as it stands.

*Eligible* is DLProf's meaning: the kind of op has Tensor Core kernels in some dtype. *Ready* looks at
the call: its dtype against the device's generation, and the alignment that the library needs. AMD's
Matrix Cores are meant as well. Whether a kernel used them is in ``kernel_names``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from opscope.core.schema import DTYPE_BITS, FLOATS, OpCall, TensorSpec

from .registry import CannotKnow, Entry, lookup, word_of
from .shapes import NO_SHAPES, tensors

#: Families that Tensor Cores can compute in some dtype.
MATRIX_FAMILIES: Final = frozenset({"gemm", "conv", "attention", "recurrent"})
#: Families of ops none of which holds a product of matrices, however it is computed.
WITHOUT_PRODUCTS: Final = frozenset(
    {"activation", "allocation", "communication", "copy", "dropout", "elementwise", "embedding"}
    | {"fill", "index", "interpolation", "loss", "norm", "optimizer", "pooling", "query", "random"}
    | {"reduction", "scan", "search", "softmax", "sort", "view"}
)

#: Lowest compute capability whose Tensor Cores take a dtype (CUDA C++ Programming Guide, "Warp
#: matrix functions", and the architecture white papers). fp64 is on the data-centre parts alone.
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
#: What AMD's Matrix Cores take, by target (ROCm, "Data types and precision support").
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
#: Whose matrix units: a compute capability, AMD's target, ``NO_UNITS``, or None where not known.
Units: TypeAlias = "tuple[int, int] | str | None"
#: The units of a device that has none (a Pascal part, a GTX 16, a CPU without AMX).
NO_UNITS: Final = "none"
#: What a dimension's bytes must be a multiple of (cuBLAS before 11 needs it, later ones are faster
#: with it): https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication
ALIGNMENT_BYTES: Final = 16
#: Element sizes in bits that need it from every version of cuBLASLt: its int8 kernels take
#: multiples of 4 elements, its fp8 and fp4 ones 16 bytes (cuBLAS documentation, cublasLtMatmul).
_ALWAYS: Final[Mapping[int, int]] = MappingProxyType({8: 4, 6: 16, 4: 32})
_FP8_STEP: Final = 16
#: A product below this many multiply-adds is done sooner than a Tensor Core kernel starts up.
TINY: Final = 16 * 16 * 16
_SPARSE: Final = "an operand is sparse: it depends on the library and on where its elements are"

# ---------------------------------------------------------------------------------- ops


def eligible(entry: Entry | None) -> bool:
    """Whether such an op could use Tensor Cores in some dtype (DLProf's meaning)."""
    return entry is not None and entry.family in MATRIX_FAMILIES


@dataclass(frozen=True, slots=True)
class Target:
    """What a call runs on: whose matrix units, cuBLAS's version, and whether TF32 is allowed.

    Each is None where the trace does not tell.
    """

    units: Units = None
    cublas: tuple[int, ...] | None = None
    tf32: bool | None = None


def ready(call: OpCall, target: Target = Target()) -> tuple[bool | None, str | None]:
    """Whether the call can use them as it stands, and what stands in the way where not.

    (None, reason) where it depends on what is not known.
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
        return None, "f32 uses them only where TF32 is allowed, which the trace does not tell"
    if units is None:
        return None, "f32 uses them from compute capability 8.0, and the device is not known"
    return True, None


def dtype_reason(dtype: str, units: Units) -> str | None:
    """Why matrix units (of this device, where it is known) do not take the dtype; None if they do."""
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
        return f"f64 has no Tensor Cores worth the name at compute capability {units[0]}.{units[1]}"
    if units < first:
        shown = "f32 (as TF32)" if dtype == "f32" else dtype
        return f"{shown} needs compute capability {first[0]}.{first[1]}, the device has {units[0]}.{units[1]}"
    return None


def one_channel_reason(call: OpCall, operands: list[TensorSpec]) -> str | None:
    """A depthwise convolution has one input channel a group: no product of matrices is in it."""
    entry = lookup(call.name)
    weight = operands[1].shape
    if entry is None or entry.family != "conv" or len(weight) < 3:
        return None
    groups = call.param("groups")
    if isinstance(groups, int) and groups > 1 and weight[1] == 1:
        return "depthwise: one input channel a group, which makes no matrix product"
    return None


def required_alignment_reason(
    call: OpCall, operands: list[TensorSpec], dtype: str, target: Target
) -> str | None:
    """Which dimension rules Tensor Cores out; those that only slow them down are not named.

    fp8, fp4 and int8 kernels need their multiples from every version; fp16 and the rest from cuBLAS
    before 11, which is the one on Volta unless the trace tells another (Ampere needs 11).
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
    """The likeliest reason why an eligible call ran on no Tensor Core kernel.

    In order: no such units, dtype, a recorded TF32 off, a depthwise convolution, a vector, a size
    that is no multiple, a tiny problem, TF32, layout. None where nothing in the call speaks against
    them. ``flops`` are the call's matrix FLOPs where they are known already.
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
        return "a product with a vector, which has no use for them"
    misaligned = alignment_reason(call, operands, wide)
    if misaligned:
        return misaligned
    entry = lookup(call.name)
    if flops is None and entry is not None:
        flops = _flops(entry, call)
    if flops is not None and flops <= 2 * TINY:
        return "a tiny problem: the library prefers a kernel without Tensor Cores"
    if wide == "f32" and not isinstance(units, str):
        return "TF32 is off, or the library chose otherwise"
    if entry is not None and entry.family == "conv":
        return "layout: the library has no Tensor Core kernel for this order of dimensions"
    return None


def _flops(entry: Entry, call: OpCall) -> int | None:
    try:
        return entry.model(call).matrix_flops
    except (CannotKnow, ValueError, IndexError, ZeroDivisionError, OverflowError):
        return None  # shapes that fit no model give no reason either


def _operands(call: OpCall) -> list[TensorSpec]:
    """The two factors of the product (three tensors of attention), addends left out."""
    found = tensors(call)
    word = word_of(call.name)
    if re.match(r"_?(?:addmm|baddbmm|addbmm|addmv|addr)", word):
        found = found[1:]
    if "backward" in word and len(found) > 2 and "conv" not in word:
        found = found[1:]
    return found


def alignment_reason(call: OpCall, operands: list[TensorSpec], dtype: str) -> str | None:
    """Which dimension's bytes are no multiple of 16 (``"K = 30 is no multiple of 8"``)."""
    bits = DTYPE_BITS.get(dtype)
    if not bits:
        return None
    return _misaligned(call, operands, max(ALIGNMENT_BYTES * 8 // bits, 1))


def _misaligned(
    call: OpCall, operands: list[TensorSpec], step: int, free: tuple[str, ...] = ()
) -> str | None:
    for label, size in _dimensions(call, operands):
        if isinstance(size, int) and size % step and label not in free:
            return f"{label} = {size} is no multiple of {step}"
    return None


def _dimensions(call: OpCall, operands: list[TensorSpec]) -> list[tuple[str, object]]:
    entry = lookup(call.name)
    family = entry.family if entry else None
    a, b = operands[0].shape, operands[1].shape
    if family == "conv":
        if len(b) < 3:
            return []
        return [("input channels", b[1]), ("output channels", b[0])]
    if family == "attention":
        return [("head size", a[-1])] if a else []
    if len(a) < 2 or len(b) < 2:
        return []
    if "linear" in call.name:
        return [("K", a[-1]), ("N", b[0])]
    return [("M", a[-2]), ("K", a[-1]), ("N", b[-1])]
