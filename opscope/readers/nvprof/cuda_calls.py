"""Names of CUDA calls by CUPTI's callback ids, which nvprof records instead of names.

From ``cupti_runtime_cbid.h`` and ``cupti_driver_cbid.h``: calls that launch, copy, set, wait or allocate,
and calls that frameworks make all the time. Other calls are named by their number, as ``cbid_N``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

RUNTIME: Final[Mapping[int, str]] = {
    3: "cudaGetDeviceCount_v3020", 8: "cudaConfigureCall_v3020", 9: "cudaSetupArgument_v3020",
    10: "cudaGetLastError_v3020", 11: "cudaPeekAtLastError_v3020", 13: "cudaLaunch_v3020",
    15: "cudaFuncGetAttributes_v3020", 16: "cudaSetDevice_v3020", 17: "cudaGetDevice_v3020",
    20: "cudaMalloc_v3020", 22: "cudaFree_v3020", 25: "cudaMallocHost_v3020",
    26: "cudaFreeHost_v3020", 27: "cudaHostAlloc_v3020", 31: "cudaMemcpy_v3020",
    32: "cudaMemcpy2D_v3020", 39: "cudaMemcpyToSymbol_v3020", 40: "cudaMemcpyFromSymbol_v3020",
    41: "cudaMemcpyAsync_v3020", 44: "cudaMemcpy2DAsync_v3020",
    47: "cudaMemcpyToSymbolAsync_v3020", 48: "cudaMemcpyFromSymbolAsync_v3020",
    49: "cudaMemset_v3020", 50: "cudaMemset2D_v3020", 51: "cudaMemsetAsync_v3020",
    52: "cudaMemset2DAsync_v3020", 126: "cudaThreadSynchronize_v3020",
    129: "cudaStreamCreate_v3020", 131: "cudaStreamSynchronize_v3020",
    132: "cudaStreamQuery_v3020", 133: "cudaEventCreate_v3020",
    134: "cudaEventCreateWithFlags_v3020", 135: "cudaEventRecord_v3020",
    137: "cudaEventSynchronize_v3020", 138: "cudaEventQuery_v3020", 144: "cudaMemcpy3D_v3020",
    145: "cudaMemcpy3DAsync_v3020", 147: "cudaStreamWaitEvent_v3020", 160: "cudaMemcpyPeer_v4000",
    161: "cudaMemcpyPeerAsync_v4000", 165: "cudaDeviceSynchronize_v3020",
    198: "cudaStreamCreateWithFlags_v5000", 200: "cudaDeviceGetAttribute_v5000",
    202: "cudaStreamCreateWithPriority_v5050", 206: "cudaMallocManaged_v6000",
    207: "cudaOccupancyMaxActiveBlocksPerMultiprocessor_v6000",
    210: "cudaOccupancyMaxActiveBlocksPerMultiprocessor_v6050", 211: "cudaLaunchKernel_v7000",
    213: "cudaLaunch_ptsz_v7000", 214: "cudaLaunchKernel_ptsz_v7000",
    251: "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_v7000",
    252: "cudaMemPrefetchAsync_v8000", 269: "cudaLaunchCooperativeKernel_v9000",
    270: "cudaLaunchCooperativeKernel_ptsz_v9000", 271: "cudaEventCreateFromEGLSync_v9000",
    272: "cudaLaunchCooperativeKernelMultiDevice_v9000", 273: "cudaFuncSetAttribute_v9000",
    284: "cudaLaunchHostFunc_v10000", 285: "cudaLaunchHostFunc_ptsz_v10000",
    310: "cudaGraphInstantiate_v10000", 311: "cudaGraphLaunch_v10000",
    315: "cudaStreamBeginCapture_v10000", 317: "cudaStreamIsCapturing_v10000",
    319: "cudaStreamEndCapture_v10000", 329: "cudaOccupancyAvailableDynamicSMemPerBlock_v10200",
    373: "cudaMallocAsync_v11020", 375: "cudaFreeAsync_v11020", 430: "cudaLaunchKernelExC_v11060",
    431: "cudaLaunchKernelExC_ptsz_v11060", 432: "cudaOccupancyMaxPotentialClusterSize_v11070",
    433: "cudaOccupancyMaxActiveClusters_v11070", 443: "cudaGraphInstantiate_v12000",
}  # fmt: skip
DRIVER: Final[Mapping[int, str]] = {
    17: "cuCtxSynchronize", 19: "cuModuleLoadData", 20: "cuModuleLoadDataEx", 71: "cuMemsetD8",
    73: "cuMemsetD16", 75: "cuMemsetD32", 115: "cuLaunch", 116: "cuLaunchGrid",
    117: "cuLaunchGridAsync", 119: "cuEventRecord", 121: "cuEventSynchronize",
    126: "cuStreamSynchronize", 216: "cuMemsetD8Async", 218: "cuMemsetD16Async",
    220: "cuMemsetD32Async", 243: "cuMemAlloc_v2", 245: "cuMemFree_v2", 249: "cuMemsetD8_v2",
    250: "cuMemsetD16_v2", 251: "cuMemsetD32_v2", 276: "cuMemcpyHtoD_v2",
    277: "cuMemcpyHtoDAsync_v2", 278: "cuMemcpyDtoH_v2", 279: "cuMemcpyDtoHAsync_v2",
    280: "cuMemcpyDtoD_v2", 281: "cuMemcpyDtoDAsync_v2", 295: "cuStreamWaitEvent",
    305: "cuMemcpy", 306: "cuMemcpyAsync", 307: "cuLaunchKernel", 318: "cuMemcpyPeer",
    319: "cuMemcpyPeerAsync", 397: "cuMemcpyHtoD_v2_ptds", 398: "cuMemcpyDtoH_v2_ptds",
    399: "cuMemcpyDtoD_v2_ptds", 408: "cuMemcpy_ptds", 409: "cuMemcpyPeer_ptds",
    411: "cuMemsetD8_v2_ptds", 412: "cuMemsetD16_v2_ptds", 413: "cuMemsetD32_v2_ptds",
    418: "cuMemcpyAsync_ptsz", 421: "cuMemcpyHtoDAsync_v2_ptsz", 422: "cuMemcpyDtoHAsync_v2_ptsz",
    423: "cuMemcpyDtoDAsync_v2_ptsz", 426: "cuMemcpyPeerAsync_ptsz", 428: "cuMemsetD8Async_ptsz",
    429: "cuMemsetD16Async_ptsz", 430: "cuMemsetD32Async_ptsz", 436: "cuStreamWaitEvent_ptsz",
    440: "cuStreamSynchronize_ptsz", 441: "cuEventRecord_ptsz", 442: "cuLaunchKernel_ptsz",
    477: "cuLaunchCooperativeKernel", 478: "cuLaunchCooperativeKernel_ptsz", 514: "cuGraphLaunch",
    515: "cuGraphLaunch_ptsz", 652: "cuLaunchKernelEx", 653: "cuLaunchKernelEx_ptsz",
}  # fmt: skip
