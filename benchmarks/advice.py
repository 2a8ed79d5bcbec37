"""Measure ``opscope advise`` of a saved profile, as people run it, and each detector's part of it.

Usage: python benchmarks/advice.py [--kernels N] [--ops M] [--keep DIR] [--profile FILE.opscope]

Without --profile it makes the training of ``dlprof.py``: steps of M ops until there are N kernels. The first
line is the goal: a million kernels in 10 s and 2 GB on two cores. Then come the command, with its start, and in
a process of its own what each detector took. The first detector that asks for a frame pays for it, so each is
asked twice: "again" is its own work. Wall and CPU seconds are both printed, because a busy machine stretches
only the wall time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import children
from dlprof import training

DETECTORS = """
import sys, time
import opscope
from opscope.core.advice.ask import detectors

def took(deed):
    wall, cpu = time.perf_counter(), time.process_time()
    value = deed()
    return value, time.perf_counter() - wall, time.process_time() - cpu

profile, wall, cpu = took(lambda: opscope.load(sys.argv[1]))
print(f"{'load':32}{wall:>8.2f}{cpu:>8.2f}")
edits = []
for name, one in detectors().items():
    found, wall, cpu = took(lambda: one.find(profile))
    _, again, _ = took(lambda: one.find(profile))
    findings = found if isinstance(found, (list, tuple)) else []
    edits += [each.edit for each in findings if each.edit is not None]
    said = f"{len(findings)} findings" if findings else getattr(found, "reason", "nothing found")
    print(f"{name:32}{wall:>8.2f}{cpu:>8.2f}{again:>8.2f}  {said[:70]}")
_, wall, cpu = took(lambda: profile._graph)
print(f"{'graph':32}{wall:>8.2f}{cpu:>8.2f}")
_, wall, cpu = took(lambda: profile._simulate(edits))
print(f"{'one replay':32}{wall:>8.2f}{cpu:>8.2f}  {len(edits)} edits")
"""


def main() -> None:
    """Make the profile unless one is given, ask for its advice, and print what that took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--ops", type=int, default=2_000)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--profile", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.keep or Path(scratch)
        source = asked.profile or folder / "training.opscope"
        if not source.exists():
            folder.mkdir(parents=True, exist_ok=True)
            training(source, asked.kernels, asked.ops)
        print("goal: 1,000,000 kernels, 10 s, 2 GB, two cores")
        for form in ("--json", "--markdown"):
            took = children.run([sys.executable, "-m", "opscope", "advise", source, form])
            peak = took.peak * 1.073741824
            print(f"advise {form}: {took.wall:.1f} s wall, {took.cpu:.1f} s CPU, {peak:.2f} GB")
        print(f"\n{'':32}{'wall s':>8}{'CPU s':>8}{'again':>8}")
        subprocess.run([sys.executable, "-c", DETECTORS, str(source)], check=True)


if __name__ == "__main__":
    main()
