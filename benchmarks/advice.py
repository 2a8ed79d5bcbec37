"""Measure ``opscope advise`` of a saved profile, as people run it, and each detector's part of it.

Usage: python benchmarks/advice.py [--kernels N] [--folder DIR] [--each] [--profile FILE.opscope]

Of a profile whose ops have registered texts, of one with PyTorch's texts, and of the training of ``dlprof.py``;
with --profile of that file alone. ``× time`` and ``× GB`` are to the goal: 10 s and 2 GB for a million kernels
on two cores. With --each also, in a process of its own, what each detector took by itself. The first detector
that asks for a frame pays for it, so each is asked twice: "again" is its own work. Wall and CPU seconds are
both printed, because a busy machine stretches only the wall time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import children
from answers import GIGABYTES, SECONDS, saved
from dlprof import training

#: The ops of a step of the training.
OPS = 2_000

DETECTORS = """
import sys, time
import opscope
from opscope.core.advice.ask import detectors
from opscope.core.advice.said import simulate
from opscope.core.analysis.critical.graph import replay_graph

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
_, wall, cpu = took(lambda: profile.of(replay_graph))
print(f"{'graph':32}{wall:>8.2f}{cpu:>8.2f}")
_, wall, cpu = took(lambda: simulate(profile, edits))
print(f"{'one replay':32}{wall:>8.2f}{cpu:>8.2f}  {len(edits)} edits")
"""


def main() -> None:
    """Make the profiles unless one is given, ask for their advice, and print what that took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="keep the files here, and reuse existing ones")
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--profile", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{'profile':20}{'':>12}{'wall s':>8}{'CPU s':>8}{'GB':>8}{'× time':>8}{'× GB':>8}")
        for name, source in profiles(asked.profile, asked.kernels, folder).items():
            for form in ("--json", "--markdown"):
                took = children.run([sys.executable, "-m", "opscope", "advise", source, form])
                gigabytes, size = took.peak * 1.073741824, asked.kernels / 1e6
                print(
                    f"{name:20}{form:>12}{took.wall:>8.2f}{took.cpu:>8.2f}{gigabytes:>8.2f}"
                    f"{took.wall / (SECONDS * size):>8.2f}{gigabytes / (GIGABYTES * size):>8.2f}",
                    flush=True,
                )
            if asked.each:
                print(f"\n{'':32}{'wall s':>8}{'CPU s':>8}{'again':>8}", flush=True)
                subprocess.run([sys.executable, "-c", DETECTORS, str(source)], check=True)


def profiles(given: Path | None, kernels: int, folder: Path) -> dict[str, Path]:
    """Return the profiles to ask by name: the given one, else those in the folder, made if they are not there."""
    if given is not None:
        return {given.stem[:19]: given}
    made = {texts: saved(texts, kernels, folder) for texts in ("registered", "torch")}
    steps = folder / "training.opscope"
    if not steps.exists():
        training(steps, kernels, OPS)
    return {**made, "training": steps}


if __name__ == "__main__":
    main()
