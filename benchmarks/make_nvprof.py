"""Make a synthetic nvprof database of any size, like those of PyProf's users.

Usage: python benchmarks/make_nvprof.py OUT.sqlite [--kernels N] [--seed S]

Each kernel is launched inside PyTorch's range of an op (``addmm, seq = 7``), the op inside PyProf's marker of
the call (``{'mod': …, 'op': …, 'args': […]}``). Every fifth call is inside a call-stack marker. This gives
2.2 ranges per kernel. The n-th kernel's op is the n-th op range.
"""

from __future__ import annotations

import argparse
import sqlite3
import struct
from pathlib import Path

import numpy as np

PID, THREAD = 29051, 1290573632
LAUNCH_KERNEL = 211  # cudaLaunchKernel_v7000
START, END, ON_THREAD = 2, 4, 2
FIRST_NS = 1_583_975_499_355_000_000
KERNELS = ("volta_sgemm_128x64_nn", "_ZN2at6native18elementwise_kernelILi512ELi1EEEvv")
CALLS = (
    ("torch.nn.functional", "linear", "addmm"),
    ("torch", "add", "add"),
    ("torch.nn.functional", "relu", "relu"),
    ("Tensor", "mul", "mul"),
)
DEVICE = {
    "id": 0, "name": 0, "globalMemoryBandwidth": 898_048_000, "globalMemorySize": 16_914_055_168,
    "coreClockRate": 1_530_000, "numMultiprocessors": 80, "maxWarpsPerMultiprocessor": 64,
    "numThreadsPerWarp": 32, "computeCapabilityMajor": 7, "computeCapabilityMinor": 0,
}  # fmt: skip
SCHEMA = """
CREATE TABLE StringTable(_id_ INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT NOT NULL UNIQUE);
CREATE TABLE CUPTI_ACTIVITY_KIND_MARKER(_id_ INTEGER PRIMARY KEY AUTOINCREMENT, flags INT NOT NULL,
  timestamp INT NOT NULL, id INT NOT NULL, objectKind INT NOT NULL, objectId BLOB NOT NULL,
  name INT NOT NULL, domain INT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(_id_ INTEGER PRIMARY KEY AUTOINCREMENT, cbid INT NOT NULL,
  start INT NOT NULL, end INT NOT NULL, processId INT NOT NULL, threadId INT NOT NULL,
  correlationId INT NOT NULL, returnValue INT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL(_id_ INTEGER PRIMARY KEY AUTOINCREMENT,
  registersPerThread INT NOT NULL, start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL,
  contextId INT NOT NULL, streamId INT NOT NULL, gridX INT NOT NULL, gridY INT NOT NULL,
  gridZ INT NOT NULL, blockX INT NOT NULL, blockY INT NOT NULL, blockZ INT NOT NULL,
  staticSharedMemory INT NOT NULL, dynamicSharedMemory INT NOT NULL,
  localMemoryPerThread INT NOT NULL, correlationId INT NOT NULL, name INT NOT NULL);
"""


class Strings:
    """The StringTable under construction."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def of(self, text: str) -> int:
        """Return the id of a text; add the text if it is new."""
        return self.ids.setdefault(text, len(self.ids) + 1)


def texts(number: int) -> tuple[str, str, str]:
    """The n-th kernel's call marker, op range and op name."""
    module, call, op = CALLS[number % len(CALLS)]
    rows = 16 * (1 + number % 500)
    tensor = {"name": "", "type": "tensor", "shape": (rows, 512), "dtype": "float16"}
    args = [tensor] if call == "relu" else [tensor, {**tensor, "shape": (512, 512)}]
    return str({"mod": module, "op": call, "args": args}), f"{op}, seq = {number}", op


def make(path: Path, kernels: int = 100_000, seed: int = 1) -> dict[str, int]:
    """Write ``path``; return the number of kernels and ranges."""
    random = np.random.default_rng(seed)
    path.unlink(missing_ok=True)
    strings = Strings()
    null = strings.of("-- null --")
    place = struct.pack("<III", PID, THREAD, 0)
    steps = random.integers(200, 2000, (kernels, 8)).cumsum().reshape(kernels, 8) + FIRST_NS
    lasts = random.integers(1000, 40_000, kernels)
    done = np.cumsum(lasts) + np.maximum.accumulate(steps[:, 4] - np.cumsum(lasts) + lasts)
    markers: list[tuple[int, int, int, int]] = []
    launches, executed = [], []
    ranges = 0

    def opened(at: int, name: str) -> int:
        nonlocal ranges
        ranges += 1
        markers.append((START, at, ranges, strings.of(name)))
        return ranges

    for number, (times, took, end) in enumerate(
        zip(steps.tolist(), lasts.tolist(), done.tolist(), strict=True)
    ):
        call, op, _ = texts(number)
        stack = None
        if number % 5 == 0:
            source = {"traceMarker": [f"('train.py', {number % 400 + 1}, 'main', 'loss')"]}
            stack = opened(times[0], str(source))
        outer, inner = opened(times[1], call), opened(times[2], op)
        launches.append((LAUNCH_KERNEL, times[3], times[4], PID, THREAD, number + 1, 0))
        executed.append((end - took, end, 32 * (1 + number % 64), number + 1,
                         strings.of(KERNELS[number % 2])))  # fmt: skip
        closing = ((times[5], inner), (times[6], outer), (times[7], stack))
        markers += [(END, at, one, 0) for at, one in closing if one is not None]
    named = {**DEVICE, "name": strings.of("Tesla V100-SXM2-16GB")}
    with sqlite3.connect(path) as db:
        db.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;" + SCHEMA)
        db.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_DEVICE({', '.join(named)})")
        db.execute(
            f"INSERT INTO CUPTI_ACTIVITY_KIND_DEVICE VALUES ({', '.join('?' * len(named))})",
            list(named.values()),
        )
        db.executemany(
            "INSERT INTO StringTable VALUES (?, ?)", [(n, text) for text, n in strings.ids.items()]
        )
        db.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MARKER VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)",
            [(flags, at, one, ON_THREAD, place, name, null) for flags, at, one, name in markers],
        )
        db.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", launches
        )
        db.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL VALUES "
            "(NULL, 32, ?, ?, 0, 1, 7, ?, 1, 1, 128, 1, 1, 0, 0, 0, ?, ?)",
            executed,
        )
    db.close()
    return {"kernels": kernels, "ranges": ranges}


def main() -> None:
    """Read the command line, make the file, print its contents."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--kernels", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    done = make(given.path, given.kernels, given.seed)
    print(f"{given.path}: {', '.join(f'{count:,} {what}' for what, count in done.items())}")


if __name__ == "__main__":
    main()
