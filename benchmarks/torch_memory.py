"""Measure the cost of recording memory per allocation: no recording, memory alone, ops, ops and memory.

Usage: python benchmarks/torch_memory.py [allocations per round]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import torch

import opscope
from opscope.adapters.torch.memory import Memory
from opscope.backends.recorder import RecorderCapture
from opscope.core.capture import session


def spent(count: int) -> float:
    """Return ns to make and release one tensor, the best of five rounds."""
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter_ns()
        for _ in range(count):
            torch.empty(1024)
        best = min(best, (time.perf_counter_ns() - begin) / count)
    return best


def recorded(count: int, memory: bool, ops: bool) -> float:
    """Return the same during a recording."""
    with tempfile.TemporaryDirectory() as folder:
        alone = Memory()
        if ops:
            opscope.init(["torch"], memory=memory)
        session.start(RecorderCapture(Path(folder, "run")))
        if memory and not ops:
            alone.listen()
        try:
            return spent(count)
        finally:
            alone.stop()
            session.stop()
            opscope.shutdown()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    torch.set_num_threads(1)
    nothing = spent(count)
    rows = {
        "nothing": nothing,
        "memory alone": recorded(count, memory=True, ops=False),
        "ops": recorded(count, memory=False, ops=True),
        "ops and memory": recorded(count, memory=True, ops=True),
    }
    print(f"torch {torch.__version__}, {count:,} times torch.empty(1024) and its release")
    for name, took in rows.items():
        print(f"{name:16} {took:8.0f} ns  +{took - nothing:.0f}")


if __name__ == "__main__":
    main()
