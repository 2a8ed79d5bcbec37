"""Each vendor's words for NVIDIA's terms and tools, to translate opscope's sentences. opscope's own sentences
use the words of NVIDIA's GPUs; ``said`` translates them into a vendor's. Texts of the program or its profiler
(names of ops, kernels and flags in lower case) stay as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

#: Commands and settings to copy: our pattern and the vendor's text.
_NPU: Final = (
    (r"\btorch\.cuda\.", "torch.npu."),
    (r"""(autocast\(|device_type=|device=)(["'])cuda\2""", r"\1\2npu\2"),
    (r"\bPYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NPU_ALLOC_CONF"),
    (r"(init_process_group\(['\"])nccl\b", r"\1hccl"),
    (r"cuda:nccl", "npu:hccl"),
)
#: Our words as patterns and the vendor's words, in order, by vendor.
WORDS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "amd": (
        (r"\bCUDA (?=graphs?\b|calls?\b|code\b|API\b)", "HIP "),
        (r"\bCUDA cores\b", "vector units"),
        (r"\bTensor Core", "matrix core"),
        (r"\bSM efficiency\b", "CU efficiency"),
        (r"\bblocks/SM\b", "blocks/CU"),
        (r"\bmultiprocessor", "compute unit"),
        (r"\(warps that", "(wavefronts that"),
        (r"\bTC\b", "MC"),
        (r"\bcuDNN\b", "MIOpen"),
        (r"\bcuBLAS(Lt)?\b", "hipBLASLt"),
        (r"\bNCCL\b", "RCCL"),
        (r"\(MIG, MPS\)", "(compute partitions)"),
        (r", or an NVIDIA DALI pipeline \([^;]*?DALIGenericIterator\)", ", or a rocAL pipeline"),
        (r"\bnsys profile -t cuda,nvtx", "rocprofv3 --hip-trace --kernel-trace"),
        (r"\bnsys profile\b", "rocprofv3"),
        (r"\bNsight Systems\b", "rocprofv3"),
        (r"\bcudaMallocAsync, hipMallocAsync, RAPIDS Memory Manager\b", "hipMallocAsync"),
        (r"\bnvtxRangePush and roctxRangePush\b", "roctxRangePush"),
    ),
    "huawei": (
        *_NPU,
        (r"\bCUDA graph", "ACL graph"),
        (r"\bCUDA (?=calls?\b|code\b|API\b)", "CANN "),
        (r"\bCUDA cores\b", "Vector units"),
        (r"\bTensor Core", "Cube unit"),
        (r"\bmultiprocessor", "AI core"),
        (r"\bTC\b", "Cube"),
        (r"\b(cuDNN|cuBLAS(Lt)?)\b", "CANN"),
        (r"\bNCCL\b", "HCCL"),
        (r"\ba GPU\b", "an NPU"),
        (r"\bGPU(?=s?\b)", "NPU"),
        (r" \(MIG, MPS\)", ""),
        (r"\bnsys profile( -t cuda,nvtx)?", "msprof"),
        (r"\bNsight Systems\b", "msprof"),
    ),
    "google": (
        (r"\bTensor Core", "matrix unit"),
        (r"\bTC\b", "MXU"),
        (r"\bGPU(?=s?\b)", "TPU"),
        (r" \(MIG, MPS\)", ""),
        (r"\bnsys profile( -t cuda,nvtx)?", "jax.profiler.trace (xprof)"),
        (r"\bNsight Systems\b", "XLA's profiler"),
    ),
    "meta": (
        (r"\btorch\.cuda\.", "torch.mtia."),
        (r"\ba GPU\b", "an MTIA device"),
        (r"\bGPU(?=s?\b)", "MTIA device"),
        (r" \(MIG, MPS\)", ""),
        (
            r"\bopscope run, or nsys profile -t cuda,nvtx",
            "torch.profiler with ProfilerActivity.MTIA",
        ),
        (r"\bopscope run or nsys profile\b", "torch.profiler with ProfilerActivity.MTIA"),
        (r"\bnsys profile\b", "torch.profiler"),
        (r"\bNsight Systems\b", "torch.profiler"),
    ),
}
_COMPILED: Final = {
    vendor: tuple((re.compile(ours), theirs) for ours, theirs in words)
    for vendor, words in WORDS.items()
}


def said(text: str, vendor: str | None) -> str:
    """Return our own ``text`` in the words of a vendor."""
    for ours, theirs in _COMPILED.get(vendor or "", ()):
        text = ours.sub(theirs, text)
    return text
