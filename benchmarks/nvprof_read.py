"""Measure reading an nvprof database of 100,000 kernels, compared with PyProf's time for the same figures.

Usage: python benchmarks/nvprof_read.py [--kernels N]

PyProf is not run here: its times were recorded once, on two cores, with 100,000 kernels and 220,000 ranges;
the ratio is printed only for that size. Each measurement has its own process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from make_nvprof import make

#: Seconds of PyProf's two steps, the least and the most that were measured.
PYPROF = {"parse": (14.0, 28.0), "prof": (31.0, 52.0)}
PYPROF_KERNELS = 100_000
CHILD = """
import json, resource, sys, time
import opscope.profile
start = time.perf_counter()
profile = opscope.profile.load(sys.argv[1])
kernels = profile.{what}()
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([seconds, peak, profile.summary()["attributed_share"][0]]))
"""


def main() -> None:
    """Make the file, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=PYPROF_KERNELS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.sqlite"
        made = make(path, given.kernels)
        print(
            f"{made['kernels']:,} kernels, {made['ranges']:,} ranges; the last column is the attributed share"
        )
        seconds = {}
        for what in ("summary", "kernels"):
            done = subprocess.run(
                [sys.executable, "-c", CHILD.format(what=what), str(path)],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                sys.exit(done.stderr)
            seconds[what], peak, share = json.loads(done.stdout)
            print(f"load, {what:10}{seconds[what]:8.2f} s{peak:8.0f} MiB{share:8.2%}")
    if given.kernels == PYPROF_KERNELS:
        low, high = (sum(one[side] for one in PYPROF.values()) for side in (0, 1))
        ratios = f"{low / seconds['kernels']:.0f} to {high / seconds['kernels']:.0f}"
        print(f"PyProf, parse then prof (recorded earlier, not run now): {low:.0f} to {high:.0f} s, "
              f"{ratios} times as long as load, kernels")  # fmt: skip


if __name__ == "__main__":
    main()
