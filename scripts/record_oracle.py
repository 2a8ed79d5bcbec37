"""Record the reports of `nsys stats` on a synthetic file, for tests/golden/test_oracle.py.

Usage: python scripts/record_oracle.py [--nsys PATH]

Needs Nsight Systems 2023.4 (`nsys` on PATH, or --nsys); the test does not need it. Writes
tests/golden/oracle.json: the generator's arguments, and for each report the number of rows, the first rows,
and a digest of every block of rows, which locates a difference.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

ROOT = Path(__file__).resolve().parents[1]
FIXTURE = ROOT / "tests/golden/oracle.json"
#: The arguments of benchmarks/make_nsys.make that make the file.
MADE = {"kernels": 200_000, "style": "library", "lost": 0.001, "seed": 20231204}
#: The columns of each report in order, and its sort keys. Without the standard deviation and the average:
#: they are rounded to a tenth, and count and total give the same information.
REPORTS = {
    "nvtx_gpu_proj_trace": (
        ("Name", "Projected Start (ns)", "Projected Duration (ns)", "Orig Start (ns)",
         "Orig Duration (ns)", "Style", "PID", "TID", "NumGPUOps", "Lvl", "NumChild", "RangeId",
         "ParentId", "RangeStack"),
        ("RangeId",),
    ),
    "nvtx_kern_sum": (
        ("NVTX Range", "Style", "PID", "TID", "NVTX Inst", "Kern Inst", "Total Time (ns)",
         "Med (ns)", "Min (ns)", "Max (ns)", "Kernel Name"),
        ("NVTX Range", "PID", "TID", "Kernel Name"),
    ),
}  # fmt: skip
BLOCK = 4096
SHOWN = 5


def summarise(report: str, frame: pl.DataFrame) -> dict[str, object]:
    """Return the number of rows, the first rows as CSV, and a digest of each block of ``BLOCK`` rows."""
    columns, keys = REPORTS[report]
    ordered = frame.select(pl.col(columns)).sort(keys)
    texts = [
        ordered.slice(at, BLOCK).write_csv(include_header=False)
        for at in range(0, len(ordered), BLOCK)
    ]
    return {
        "rows": len(ordered),
        "first": texts[0].splitlines()[:SHOWN] if texts else [],
        "blocks": [hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts],
    }


def recorded(nsys: str, report: str, database: Path) -> pl.DataFrame:
    """Return the rows of the report as the tool prints them."""
    done = subprocess.run(
        [nsys, "stats", "--report", report, "--format", "csv", "--output", "-", str(database)],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines(keepends=True)
    first = next(
        (n for n, line in enumerate(lines) if line.startswith(REPORTS[report][0][0])), None
    )
    if done.returncode or first is None:
        sys.exit(f"record_oracle: {nsys} stats failed: {(done.stderr or done.stdout)[-500:]}")
    frame = pl.read_csv("".join(lines[first:]).encode(), infer_schema_length=None)
    # kernels outside any range are one empty row in the trace of ranges
    return frame.filter(~pl.all_horizontal(pl.all().is_null()))


def main() -> None:
    """Make the file, run the tool, write the fixture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nsys", default="nsys")
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from make_nsys import make

    version = subprocess.run([given.nsys, "--version"], capture_output=True, text=True, check=True)
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "made.sqlite"
        make(database, **MADE)
        reports = {name: summarise(name, recorded(given.nsys, name, database)) for name in REPORTS}
    FIXTURE.write_text(
        json.dumps({"tool": version.stdout.strip(), "made": MADE, "reports": reports}, indent=1)
        + "\n"
    )
    for name, report in reports.items():
        print(f"{name}: {report['rows']:,} rows")


if __name__ == "__main__":
    main()
