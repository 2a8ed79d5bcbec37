"""Measure PyProf's table of an nvprof database by opscope, and by PyProf where it is installed.

Usage: python benchmarks/pyprof.py [--kernels N] [--file FILE] [--pyprof-python PATH]

PATH is a Python that has PyProf (``pip install`` of its source: it is on no package registry, where the names
``pyprof`` and ``nvidia-pyprof`` are another project and a placeholder). Without it PyProf's times are those
recorded once, on two cores, with 100,000 kernels and 220,000 ranges. Each step has its own process: wall and
CPU seconds (user and system), and its peak memory, are the system's. On a busy machine compare CPU seconds. If
PyProf ran, the columns of both are compared row by row.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from make_nvprof import make
from nvprof_read import PYPROF, PYPROF_KERNELS

COLUMNS = "idx,seq,altseq,tid,layer,trace,dir,sub,mod,op,kernel,params,sil,tc,device,stream,grid,block,flops,bytes"


class Used(NamedTuple):
    """What a command took: wall seconds, CPU seconds, peak memory (MiB)."""

    wall: float
    cpu: float
    peak: float


def timed(command: list[str], output: Path) -> Used:
    """Run a command into a file and return what it took. Ends the benchmark if it fails."""
    begin = time.perf_counter()
    with output.open("wb") as file:
        child = subprocess.Popen(command, stdout=file, stderr=subprocess.PIPE)
        assert child.stderr is not None
        said = child.stderr.read()
        _, status, used = os.wait4(child.pid, 0)
    if status:
        sys.exit(said.decode(errors="replace")[-2000:] or f"{command[0]} ended with {status}")
    return Used(time.perf_counter() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def shown(what: str, used: Used) -> float:
    """Print a measurement and return its CPU seconds."""
    print(f"{what:38}{used.wall:9.2f} s{used.cpu:9.2f} CPU s{used.peak:8.0f} MiB")
    return used.cpu


def compared(theirs: Path, ours: Path) -> None:
    """Print how many rows of each column are equal in both CSV files."""
    with theirs.open() as one, ours.open() as other:
        rows = list(zip(csv.DictReader(one), csv.DictReader(other), strict=True))
    for name in rows[0][0] if rows else ():
        equal = sum(_same(one[name], other[name]) for one, other in rows)
        print(f"  {name:10}{equal:>9,} of {len(rows):,} rows equal")


def _same(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other


def main() -> None:
    """Make the file, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=PYPROF_KERNELS)
    parser.add_argument(
        "--file", type=Path, help="an nvprof database to use in place of a made one"
    )
    parser.add_argument("--pyprof-python", help="a Python that has PyProf")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = given.file or folder / "net.sqlite"
        if given.file is None:
            made = make(path, given.kernels)
            print(f"{made['kernels']:,} kernels, {made['ranges']:,} ranges")
        listing = [sys.executable, "-m", "opscope", "kernels", str(path), "--style", "pyprof"]
        seconds = shown("opscope, space-separated, 8 columns", timed(listing, folder / "ours.txt"))
        whole = timed([*listing, "--csv", "-c", COLUMNS], folder / "ours.csv")
        all_columns = shown("opscope, CSV, 20 columns", whole)
        if given.pyprof_python:
            parse = [given.pyprof_python, "-m", "pyprof.parse", str(path)]
            theirs = shown("PyProf, parse", timed(parse, folder / "net.dict"))
            prof = [given.pyprof_python, "-m", "pyprof.prof", "--csv", "-c", COLUMNS]
            theirs += shown("PyProf, prof, CSV, 20 columns",
                            timed([*prof, str(folder / "net.dict")], folder / "theirs.csv"))  # fmt: skip
            print(f"PyProf takes {theirs / all_columns:.0f} times the CPU seconds")
            compared(folder / "theirs.csv", folder / "ours.csv")
        elif given.file is None and given.kernels == PYPROF_KERNELS:
            low, high = (sum(one[side] for one in PYPROF.values()) for side in (0, 1))
            print(f"PyProf, parse then prof (recorded earlier, not run now): {low:.0f} to {high:.0f} s, "
                  f"{low / seconds:.0f} to {high / seconds:.0f} times these CPU seconds")  # fmt: skip


if __name__ == "__main__":
    main()
