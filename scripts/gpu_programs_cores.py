"""The programs of gpu_check.sh whose FLOPs and whose use of Tensor Cores are known beforehand."""

from __future__ import annotations

import torch
from torch.nn import functional as F

#: Runs of each operator.
RUNS = 3
#: Sizes of products (m, n, k) and channels of convolutions: multiples of 256, which no tile pads.
PRODUCTS = ((256, 256, 256), (1024, 512, 2048), (2048, 2048, 2048), (4096, 4096, 1024))
CHANNELS = ((256, 256), (256, 512))


def programs(common):
    """Return the programs by name; ``common`` is the module gpu_programs, which may be ``__main__``."""

    def products(device):
        """Products and implicit-GEMM convolutions of full tiles, in each precision: FLOPs to be counted."""
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = False
        scale = 1 if device == "cuda" else 16
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            for m, n, k in PRODUCTS:
                a = torch.randn(m // scale, k // scale, device=device, dtype=dtype)
                b = torch.randn(k // scale, n // scale, device=device, dtype=dtype)
                for _ in range(RUNS):
                    torch.mm(a, b)
            for inside, outside in CHANNELS:
                x = torch.randn(256 // scale, inside // scale, 16, 16, device=device, dtype=dtype)
                w = torch.randn(outside // scale, inside // scale, 1, 1, device=device, dtype=dtype)
                x, w = (one.contiguous(memory_format=torch.channels_last) for one in (x, w))
                for _ in range(RUNS):
                    F.conv2d(x, w)
        common.wait(device)
        return {"runs": RUNS, "loss": None}

    def cores(device):
        """A bf16 product, which runs on Tensor Cores; a float32 one that may not use TF32, and sums."""
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("highest")
        size = 2048 if device == "cuda" else 64
        a = torch.randn(size, size, device=device)
        half = a.to(torch.bfloat16)
        for _ in range(RUNS):
            torch.mm(half, half)  # on Tensor Cores
            torch.mm(a, a)  # not on Tensor Cores
            torch.add(a, a)  # not on Tensor Cores
        common.wait(device)
        return {"runs": RUNS, "loss": None}

    return {one.__name__: one for one in (products, cores)}
