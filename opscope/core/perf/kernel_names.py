"""What a kernel's name tells: whether it computes on Tensor Cores, and whether by a fast algorithm.

Names are as NVIDIA's, Triton's and AMD's libraries form them; tests/core/perf/kernel_names.csv holds
labelled ones and where each is from.
"""

from __future__ import annotations

import re
from functools import lru_cache

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
    r"SM(?:70|75|80|89|90|100|120)_\d+x\d+x\d+|SM100_MMA|Sm(?:90|100|103|120)(?:Array)?(?:Tma|Mma|Umma)|"
    r"MmaMultistage.*TensorOp|triton_tem_|^triton_mm|^(?:triton_)?gemm_(?:fusion_)?dot|fused_moe_kernel|^_(?:p_)?matmul_ogs_|_attn_(?:fwd|bwd)|"
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


_HELPER = re.compile(
    r"splitk_?reduce|reducesplitk|computeOffsets|computeBOffsets|nchwToNhwc|nhwcToNchw|compute_gemm_pointers|"
    r"scalePackedTensor|transform_filter|flip_filter|GammaBeta",
    re.IGNORECASE,
)


def helps(kernel: str) -> bool:
    """Whether the kernel only serves another of its op: adds up its parts, lays out its data, or has what
    is left of a layer norm's backward."""
    return bool(_HELPER.search(kernel))
