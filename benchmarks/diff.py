"""Measure ``opscope diff`` of two saved profiles: time and memory, and the ratio to reading and adding up one.

Usage: python benchmarks/diff.py [--kernels 1000000] [--folder DIR]

The first profile names its ops by registered texts, the second as PyTorch's profiler does; each is compared
with itself, and one with the other. ``× time`` and ``× GB`` are to the goal: 10 s and 2 GB for a million
kernels on each side, on two cores. ``× one`` is to ``opscope report --reports steps,operator_types`` of one profile.
Holistic Trace Analysis's trace diff compares kernels by name of two traces that it has in memory: it takes
the two loads, which docs/performance.md has, and sums by name.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import children
from answers import GIGABYTES, SECONDS, saved


def main() -> None:
    """Read the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="keep the files here, and reuse existing ones")
    given = parser.parse_args()
    size = given.kernels / 1e6
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        profiles = {name: saved(name, given.kernels, folder) for name in ("registered", "torch")}
        one = children.run(
            [*children.report(profiles["torch"]), "--reports", "steps,operator_types"]
        )
        print(
            f"{'compared':28}{'wall s':>8}{'CPU s':>8}{'GB':>8}{'× time':>8}{'× GB':>8}{'× one':>8}"
        )
        for a, b in (("torch", "torch"), ("registered", "registered"), ("registered", "torch")):
            took = children.run([sys.executable, "-m", "opscope", "diff", profiles[a], profiles[b]])
            gigabytes = took.peak * 1.073741824
            print(
                f"{f'{a} with {b}':28}{took.wall:>8.2f}{took.cpu:>8.2f}{gigabytes:>8.2f}"
                f"{took.wall / (SECONDS * size):>8.2f}{gigabytes / (GIGABYTES * size):>8.2f}"
                f"{took.cpu / one.cpu:>8.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
