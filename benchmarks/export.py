"""Measure ``opscope export`` of a saved profile, per format, beside saving a copy of the profile.

Usage: python benchmarks/export.py [--kernels N] [--file PROFILE] [--growth] [--without-calls] [--to FORMAT]

Makes an nvprof database of N kernels and saves its profile, unless one is given. Each command has its own
process: wall and CPU seconds and peak memory are the system's, sizes those of the files. The limit is to read the
profile and write it again, ``opscope.load(…).save(…)``. On a busy machine compare CPU seconds. With --growth it
writes the file of one format (perfetto) of 1, 3 and 10 million kernels instead, and prints the peak and how it grows
beside the number of kernels: of a training with a call and two ranges a kernel (``make_training.py``), or without
calls (``timeline.py``'s kernels).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pyprof import Used, shown, timed

FORMATS = ("perfetto", "chrome", "speedscope", "flamegraph", "otlp", "prometheus")
SIZES = (1_000_000, 3_000_000, 10_000_000)
PATHS = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
MAKE = "import make_nvprof, sys; from pathlib import Path; make_nvprof.make(Path(sys.argv[1])"
SAVE = "import opscope, sys; opscope.load(sys.argv[1]).save(sys.argv[2])"


def size(path: Path) -> float:
    """The size of a file or folder in MB."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(one.stat().st_size for one in files if one.is_file()) / 1e6


def growth(to: str, with_calls: bool) -> None:
    """Print the peak of a format's export by the number of kernels."""
    before: tuple[int, float] | None = None
    for kernels in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            profile, target = Path(folder) / "run.opscope", Path(folder) / "out"
            module = "make_training" if with_calls else "timeline"
            # in a process of its own: its memory is not the export's
            code = f"import sys; from pathlib import Path; import {module}; "
            code += f"{module}.make(Path(sys.argv[1]), {kernels})"
            command = [sys.executable, "-c", code, str(profile)]
            subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": PATHS})
            command = [sys.executable, "-m", "opscope", "export", str(profile), "--to", to]
            used = timed([*command, "-o", str(target)], Path(os.devnull))
            shown(f"{to}, {kernels:,} kernels", used)
            line = f"{'':38}{size(target):9.1f} MB"
        if before is not None:
            line += f"{used.peak / before[1]:8.2f} times the peak, {kernels / before[0]:.2f} the kernels"
        print(line)
        before = kernels, used.peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=200_000)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--without-calls", action="store_true")
    parser.add_argument("--to", default="perfetto")
    asked = parser.parse_args()
    if asked.growth:
        growth(asked.to, not asked.without_calls)
        return
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        profile = asked.file
        if profile is None:
            profile = where / "run.opscope"
            # in processes of their own: what a process had when it began another counts as the other's peak
            for code in (f"{MAKE}, {asked.kernels})", SAVE):
                command = [sys.executable, "-c", code, str(where / "nvprof.sqlite"), str(profile)]
                subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": PATHS})
        rows: list[tuple[str, Used, Path]] = []
        copy = where / "copy.opscope"
        rows.append(
            (
                "load and save",
                timed([sys.executable, "-c", SAVE, str(profile), str(copy)], Path(os.devnull)),
                copy,
            )
        )
        for name in FORMATS:
            target = where / f"out.{name}"
            command = [sys.executable, "-m", "opscope", "export", str(profile), "--to", name]
            rows.append((name, timed([*command, "-o", str(target)], Path(os.devnull)), target))
        limit = rows[0][1].cpu
        for name, used, path in rows:
            shown(name, used)
            print(f"{'':38}{size(path):9.1f} MB{used.cpu / limit:8.2f} of load and save")


if __name__ == "__main__":
    main()
