"""Run a command as a child process and measure its wall and CPU seconds and its peak memory.

The whole command is measured as users run it: the start of the interpreter, the imports and the printing are
included. The peak memory is that of the child alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Took:
    """Wall, CPU and user time in seconds, peak memory in GiB, and the child's stdout."""

    wall: float
    cpu: float
    peak: float
    said: str
    user: float


def run(command: Sequence[str | Path]) -> Took:
    """Run the command to its end. Raises CalledProcessError if it fails; its stderr is shown."""
    with tempfile.TemporaryFile() as out:
        begun = time.perf_counter()
        child = subprocess.Popen([os.fspath(word) for word in command], stdout=out)
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - begun
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise subprocess.CalledProcessError(child.returncode, child.args)
        out.seek(0)
        said = out.read().decode()
    kib = usage.ru_maxrss if sys.platform != "darwin" else usage.ru_maxrss / 1024
    return Took(wall, usage.ru_utime + usage.ru_stime, kib / 2**20, said, usage.ru_utime)


def report(path: Path, *more: str) -> list[str | Path]:
    """The command ``opscope report FILE``."""
    return [sys.executable, "-m", "opscope", "report", path, *more]


def growth(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the exponent of time over size, fitted to the logarithms: 1 is linear."""
    import numpy as np  # imported late: a floor is measured in a process with few imports

    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
