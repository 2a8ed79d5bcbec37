"""Measure the reports of profilers' questions from a saved profile: all in one command, or each alone.

Usage: python benchmarks/answers.py [--kernels 1000000] [--texts registered torch] [--each] [--select]
       [--folder DIR]

``opscope report PROFILE --reports …`` names the reports that answer profilers' questions, and the ratios are to
the goal: 10 s and 2 GB for a million kernels on two cores. ``--each`` runs each report in a process of
its own, ``--select`` all of them for one device.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import children

#: The goal for a million kernels: seconds, and GB (10^9 bytes).
SECONDS, GIGABYTES = 10.0, 2.0
#: The least order of these reports in the catalogue.
QUESTIONS = 300


def names() -> list[str]:
    """Return the reports of steps, operators, the device's use, memory, idle time, critical path and host."""
    from opscope.core.question.registry import reports

    return [one.name for one in reports().values() if one.order >= QUESTIONS]


def command(profile: Path, wanted: list[str], *options: str) -> list[str]:
    """Return the command that people run."""
    return [*children.report(profile), "--reports", ",".join(wanted), *options]


def line(texts: str, what: str, took: children.Took, size: float) -> None:
    """Print one row of the table; ``size``: millions of kernels."""
    gigabytes = took.peak * 1.073741824
    print(
        f"{texts:12}{what:28}{took.wall:>8.2f}{took.cpu:>8.2f}{gigabytes:>8.2f}"
        f"{took.wall / (SECONDS * size):>8.2f}{gigabytes / (GIGABYTES * size):>8.2f}",
        flush=True,
    )


def saved(texts: str, kernels: int, folder: Path) -> Path:
    """Return a saved profile with that many kernels, made if it does not exist: as ``opscope run`` leaves one,
    with the results of a report and the columns of kernels kept."""
    from make_nsys import make

    path = folder / f"{texts}-{kernels}.sqlite"
    profile = path.with_suffix(".opscope")
    if not path.exists():
        make(path, kernels, style=texts)
    if not profile.exists():
        code = "import opscope, sys; opscope.load(sys.argv[1]).save(sys.argv[2])"
        children.run([sys.executable, "-c", code, str(path), str(profile)])
        children.run(children.report(profile))
        code = "import opscope, sys; opscope.load(sys.argv[1])._keep_more()"
        children.run([sys.executable, "-c", code, str(profile)])
    return profile


def main() -> None:
    """Read the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument(
        "--texts", nargs="+", choices=("registered", "torch"), default=["registered", "torch"]
    )
    parser.add_argument(
        "--each", action="store_true", help="each report in a process of its own, too"
    )
    parser.add_argument("--select", action="store_true", help="all reports of one device, too")
    parser.add_argument("--folder", type=Path, help="keep the files here, and reuse existing ones")
    given = parser.parse_args()
    size, wanted = given.kernels / 1e6, names()
    print(f"{'texts':12}{'reports':28}{'wall s':>8}{'CPU s':>8}{'GB':>8}{'× time':>8}{'× GB':>8}")
    with tempfile.TemporaryDirectory() as temporary:
        for texts in given.texts:
            profile = saved(texts, given.kernels, given.folder or Path(temporary))
            line(texts, f"all {len(wanted)}", children.run(command(profile, wanted)), size)
            if given.each:
                for name in wanted:
                    line(texts, name, children.run(command(profile, [name])), size)
            if given.select:
                took = children.run(command(profile, wanted, "--device", "0"))
                line(texts, "all, of device 0", took, size)


if __name__ == "__main__":
    main()
