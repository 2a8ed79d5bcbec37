"""Tensor Cores: could this kind of op use them, can this call as it stands, did this kernel.

*Eligible* is DLProf's meaning: the kind of op has Tensor Core kernels in some dtype. *Ready* looks at
the call: its dtype against the device's generation, and the alignment that the library needs. *Used*
is read from kernel names, as NVIDIA's, Triton's and AMD's libraries form them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from opscope.core.schema import DTYPE_BITS, OpCall, TensorSpec

from .registry import CannotKnow, Entry, lookup
from .shapes import tensors

#: Families that Tensor Cores can compute in some dtype.
MATRIX_FAMILIES: Final = frozenset({"gemm", "conv", "attention", "recurrent"})

#: Lowest compute capability whose Tensor Cores take a dtype (CUDA C++ Programming Guide, "Warp matrix
#: functions", and the architecture white papers). fp64 is on the data-centre parts alone.
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
_FP64_PARTS: Final = frozenset({(8, 0), (9, 0), (10, 0), (10, 3)})
#: What a dimension's bytes must be a multiple of (cuBLAS before 11 needs it, later ones are faster
#: with it): https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication
ALIGNMENT_BYTES: Final = 16
#: A product below this many multiply-adds is done sooner than a Tensor Core kernel starts up.
TINY: Final = 16 * 16 * 16

# ------------------------------------------------------------------------------ kernels

#: Parts of a product's name that are no product, or one without Tensor Cores.
_NOT = re.compile(
    r"simt|ffma|sgemm_|_sgemm|dgemm_|hgemm_|splitk_?reduce|splitKreduce|SplitKReduce|"
    r"combine|ReduceSplitK|reduction::kernel|convert_dq|convert_dkv|dot_do_o|dot_o_do|reduce_kernel|prepare_varlen|"
    r"gemv|Gemv|gemmSN|gemmk1|computeOffsets|nchwToNhwc|nhwcToNchw|transform_filter|"
    r"fmha_cutlass[FB]_f32_\w*?sm(?:50|70|75)|fmha_cutlass[FB]_\w*?sm50|"
    r"^triton_(?:poi|per|red|for)_|^triton__|scalePackedTensor|MmaSimt|OpClassSimt",
    re.IGNORECASE,
)
_USED = re.compile(
    # the instruction's M, N and K before the kind of product: s884gemm, h16816, i8816cudnn
    r"(?<![0-9])(?:884|1688|8816|8832|16816|16832|16864|161616|88128|168128|168256|1684)"
    r"(?:g_|_|x\d|gemm|cudnn|fprop|dgrad|wgrad|conv|symm|trmm|syrk|herk|hemm|3xtf32)|"
    r"tensorop|TensorOp|_tensor\d+x\d+x\d+|wmma|wgmma|gmma|umma|tcgen05|hmma|imma|qmma|omma|"
    r"\bnvjet_|xmma_|_xmma|(?<![a-z])mma_|bmma|Mfma|MFMA|"
    r"flash_(?:fwd|bwd)|flash::|FlashAttnFwd|FlashAttnBwd|fmha_cutlass[FB]_|fmha_v2|fmhaSm|"
    r"flash_attention_(?:fp16|bf16|e4m3)|sdpa_sm\d+_flash|CollectiveMmaAttention|"
    r"SM(?:70|75|80|89|90|100|120)_\d+x\d+x\d+|SM100_MMA|Sm(?:90|100|120)(?:Tma|Mma|Umma)|"
    r"MmaMultistage.*TensorOp|triton_tem_|^triton_mm|fused_moe_kernel|_attn_(?:fwd|bwd)|"
    r"unified_attention_[23]d|deep_gemm::|fp8_gemm_kernel|marlin|machete|"
    r"^(?:bmm|gemm)_\w+?_(?:Fp32|Fp16|Bfloat16|E\dm\d)\w*_bA\d+|"
    r"^Cijk_.*_MI\d+x\d+|batched_gemm.*xdl|_xdl_|ck_tile::FmhaFwd|ck_tile::FmhaBwd|ck_tile::Gemm",
)
_ELSEWHERE = re.compile(r"nccl|memcpy|memset", re.IGNORECASE)
_CUTLASS_GENERIC = re.compile(r"cutlass(?:_\w+)?::(?:Kernel|device_kernel)", re.IGNORECASE)


@lru_cache(maxsize=65_536)
def used(kernel: str) -> bool | None:
    """Whether a kernel of this name computes on Tensor Cores; ``None`` where its name hides it.

    A kernel that is no matrix product is False. Names of generic templates with no instruction in
    them (a bare ``cutlass::Kernel2<...>`` cut short) are None.
    """
    name = kernel.strip()
    if _ELSEWHERE.search(name):
        return False
    found = _USED.search(name)
    against = _NOT.search(name)
    if found and not (against and _decides(name, against.group(0))):
        return True
    if against or not _CUTLASS_GENERIC.search(name):
        return False
    return None


def _decides(name: str, against: str) -> bool:
    """Whether the word against it holds although an instruction is in the name as well."""
    word = against.lower()
    if word in ("sgemm_", "_sgemm", "hgemm_", "dgemm_"):
        # cutlass_80_tensorop_sgemm_…, volta_h884gemm: the instruction says more than the letter
        return not re.search(r"tensorop|\d{3,6}gemm|tensor\d+x|nvjet", name)
    if word in ("reduce_kernel", "combine", "gemv"):
        return not re.search(r"tensorop|\d{3,6}gemm|tensor\d+x", name)
    return True


_FAST = re.compile(r"winograd|fft2d|_fft|fft_|cgemm|r2c|c2r|strassen", re.IGNORECASE)


def fast_algorithm(kernel: str) -> bool:
    """Whether the kernel does a convolution with fewer multiplications (Winograd, FFT)."""
    return bool(_FAST.search(kernel))


# ---------------------------------------------------------------------------------- ops


def eligible(name: str) -> bool:
    """Whether the op's kind could use Tensor Cores in some dtype (DLProf's meaning)."""
    entry = lookup(name)
    return entry is not None and entry.family in MATRIX_FAMILIES


def ready(
    call: OpCall,
    cc: tuple[int, int] | None = None,
    cublas: tuple[int, ...] | None = None,
    tf32: bool | None = None,
) -> tuple[bool | None, str | None]:
    """Whether the call can use them as it stands, and what stands in the way where not.

    ``cc`` is the device's compute capability, ``cublas`` the library's version (before 11 needs
    aligned sizes), ``tf32`` whether TF32 is allowed. (None, reason) where it depends on what is not
    known.
    """
    operands = _operands(call)
    if len(operands) < 2:
        return None, "the trace has no shapes for this call"
    dtypes = {t.dtype for t in operands[:2]}
    if "?" in dtypes:
        return None, "the trace gives sizes without element types"
    wide = max(dtypes, key=lambda d: DTYPE_BITS.get(d, 0))
    why = dtype_reason(wide, cc)
    if why is not None:
        return False, why
    misaligned = alignment_reason(call, operands, wide)
    if misaligned and ((cublas is not None and cublas < (11,)) or (cc is not None and cc < (7, 5))):
        return False, misaligned
    if wide == "f32":
        allowed = call.param("allow_tf32", tf32)
        if allowed is False:
            return False, "TF32 is off"
        if allowed is None:
            return None, "f32 uses them only where TF32 is allowed, which the trace does not tell"
        if cc is None:
            return None, "f32 uses them from compute capability 8.0, and the device is not known"
    return True, None


def dtype_reason(dtype: str, cc: tuple[int, int] | None) -> str | None:
    """Why Tensor Cores (of this device, where it is known) do not take the dtype; None if they do."""
    first = FIRST_CC.get(dtype)
    if first is None:
        return f"{dtype} has no Tensor Core instruction"
    if cc is None:
        return None
    if dtype in ("i4", "u4") and cc >= (9, 0):
        return f"{dtype} has no Tensor Core instruction from compute capability 9.0"
    if dtype == "f64" and cc not in _FP64_PARTS:
        return f"f64 has no Tensor Cores worth the name at compute capability {cc[0]}.{cc[1]}"
    if cc < first:
        shown = "f32 (as TF32)" if dtype == "f32" else dtype
        return f"{shown} needs compute capability {first[0]}.{first[1]}, the device has {cc[0]}.{cc[1]}"
    return None


def unused_reason(
    call: OpCall, cc: tuple[int, int] | None = None, flops: int | None = None
) -> str | None:
    """The likeliest reason why an eligible call ran on no Tensor Core kernel.

    In order: dtype, a recorded TF32 off, a vector, a size that is no multiple, a tiny problem, TF32,
    layout. None where nothing in the call speaks against them. ``flops`` are the call's matrix FLOPs
    where they are known already.
    """
    operands = _operands(call)
    if len(operands) < 2:
        return None
    wide = max((t.dtype for t in operands[:2]), key=lambda d: DTYPE_BITS.get(d, 0))
    if wide == "?":
        return None
    why = dtype_reason(wide, cc)
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
    if wide == "f32":
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
    word = call.name.rsplit("::", 1)[-1]
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
    step = max(ALIGNMENT_BYTES * 8 // bits, 1)
    for label, size in _dimensions(call, operands):
        if isinstance(size, int) and size % step:
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
