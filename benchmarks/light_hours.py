"""Steps of a long training as fast as they come, in light mode: memory and disk over their number.

python benchmarks/light_hours.py 1000000
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import psutil

import opscope
from opscope.backends import light


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        recording = light.into(folder, False)
        process = psutil.Process()
        for step in range(1, steps + 1):
            opscope.step()
            if step % (steps // 10) == 0:
                disk = sum(one.stat().st_size for one in Path(folder).rglob("*") if one.is_file())
                print(
                    f"{step:>10} steps  {process.memory_info().rss / 1e6:7.1f} MB  {disk / 1e6:6.2f} MB on disk"
                )
        recording.stop()


if __name__ == "__main__":
    main()
