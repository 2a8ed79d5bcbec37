"""Record what NVIDIA's occupancy calculator answers, for the tests of ours.

    python scripts/record_occupancy.py PATH/TO/cuda_occupancy.h > tests/core/perf/occupancy.csv

The header is part of the CUDA runtime (in the wheel nvidia-cuda-runtime: ``include/cuda_occupancy.h``); it
needs a C compiler and no GPU. Each row is a launch configuration on a multiprocessor of a compute capability
and the blocks that fit, in all and by resource.
"""

from __future__ import annotations

import csv
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from opscope.core.perf.devices.occupancy import UNLIMITED, multiprocessor
from opscope.core.perf.devices.peaks import tables

#: Configurations of each compute capability.
_EACH: Final = 40
COLUMNS: Final = (
    "cc",
    "threads",
    "registers",
    "shared",
    "blocks",
    "by_size",
    "by_registers",
    "by_shared",
)
_PROGRAM: Final = r"""
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "cuda_occupancy.h"

int main(void) {
    int major, minor, warps, reserved, threads, registers;
    long sm_shared, block_shared, shared;
    while (scanf("%d %d %d %ld %ld %d %d %d %ld", &major, &minor, &warps, &sm_shared, &block_shared,
                 &reserved, &threads, &registers, &shared) == 9) {
        struct cudaOccDeviceProp device;
        struct cudaOccFuncAttributes kernel;
        struct cudaOccDeviceState state;
        struct cudaOccResult result;
        memset(&device, 0, sizeof device);
        memset(&kernel, 0, sizeof kernel);
        memset(&state, 0, sizeof state);
        memset(&result, 0, sizeof result);
        device.computeMajor = major;
        device.computeMinor = minor;
        device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = warps * 32;
        device.regsPerBlock = device.regsPerMultiprocessor = 65536;
        device.warpSize = 32;
        device.sharedMemPerBlock = 49152;
        device.sharedMemPerMultiprocessor = sm_shared;
        device.numSms = 1;
        device.sharedMemPerBlockOptin = block_shared;
        device.reservedSharedMemPerBlock = reserved;
        kernel.maxThreadsPerBlock = INT_MAX;
        kernel.numRegs = registers;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = shared;
        state.carveoutConfig = SHAREDMEM_CARVEOUT_DEFAULT;
        if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, shared))
            return 1;
        printf("%d %d %d %d\n", result.activeBlocksPerMultiprocessor, result.blockLimitWarps,
               result.blockLimitRegs, result.blockLimitSharedMem);
    }
    return 0;
}
"""


def configurations(block_shared: int, chance: random.Random) -> list[tuple[int, int, int]]:
    """Return (threads, registers, shared memory) of launches that a device might see, and of some too large."""
    found = []
    for _ in range(_EACH):
        threads = chance.choice((32 * chance.randint(1, 32), chance.randint(1, 1056)))
        registers = chance.choice((chance.randint(1, 255), chance.choice((32, 64, 128, 255))))
        shared = chance.choice((0, chance.randint(0, 49152), chance.randint(0, block_shared + 512)))
        found.append((threads, registers, shared))
    return found


def main() -> int:
    """Compile the header with the program above, ask it, and write its answers."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_file():
        sys.stderr.write(__doc__ or "")
        return 2
    chance = random.Random(0)
    asked, lines = [], []
    for cc in tables()["limits"]:
        sm = multiprocessor(cc)
        if sm is None:
            continue
        major, minor = cc.split(".")
        for each in configurations(sm.block_shared, chance):
            asked.append((cc, *each))
            lines.append(
                f"{major} {minor} {sm.warps} {sm.shared} {sm.block_shared} {sm.reserved} "
                + " ".join(map(str, each))
            )
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "ask.c"), Path(folder, "ask")
        source.write_text(_PROGRAM)
        include = str(Path(sys.argv[1]).parent)
        subprocess.run(["cc", "-O1", "-I", include, "-o", program, source], check=True)
        done = subprocess.run(
            [program], input="\n".join(lines), capture_output=True, text=True, check=True
        )
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(COLUMNS)
    for one, line in zip(asked, done.stdout.splitlines(), strict=True):
        out.writerow((*one, *(min(int(number), UNLIMITED) for number in line.split())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
