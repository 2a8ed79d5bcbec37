"""Measure reading a synthetic Nsight Systems file, compared with a plain sqlite3 read of the same columns.

Usage: python benchmarks/nsys_read.py [--kernels N] [--texts registered|torch] [--attribute] [--keep FILE]

Each measurement has its own process, and so its own peak memory. Wall and CPU seconds are both printed,
because a busy machine stretches only the wall time.
"""

from __future__ import annotations

import argparse
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import children

#: The columns that the reader needs, by table.
COLUMNS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start, end, globalPid, deviceId, contextId, streamId, correlationId, demangledName, gridX, "
        "gridY, gridZ, blockX, blockY, blockZ, clusterX, clusterY, clusterZ, registersPerThread, "
        "staticSharedMemory, dynamicSharedMemory, localMemoryPerThread, graphId, graphNodeId"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, globalTid, correlationId, nameId",
    "NVTX_EVENTS": (
        "start, end, eventType, globalTid, endGlobalTid, domainId, category, textId, text, int64Value"
    ),
}


def floor(path: Path) -> dict[str, float]:
    """The lower bound: read every row of these columns with sqlite3 and drop it."""
    db = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    rows = 0
    for table, columns in COLUMNS.items():
        for _ in db.execute(f"SELECT {columns} FROM {table}"):
            rows += 1
    return {"rows": rows}


def read(path: Path) -> dict[str, float]:
    """Run opscope's reader, which returns the trace tables."""
    from opscope.readers.nsys import reader as nsys

    trace = nsys.read(path)
    return {"rows": sum(len(trace[name]) for name in ("kernels", "calls", "ranges"))}


def attributed(path: Path) -> dict[str, float]:
    """Run the reader and attribution; ``wrong`` counts kernels with a range other than the true one."""
    import polars as pl

    from opscope.core.attribution.attribute import attribute
    from opscope.readers.nsys import reader as nsys

    trace = nsys.read(path)
    begun = time.perf_counter()
    result = attribute(trace)
    spent = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # before the truth is joined
    kernels = trace["kernels"].select("process", "correlation")
    found = kernels.with_columns(pl.Series("op", result.kernels.op).cast(pl.Int64))
    truth = pl.read_parquet(path.with_suffix(".truth.parquet"))
    joined = found.join(truth, on=["process", "correlation"], how="full")
    wrong = (joined["op"] != joined["range"].fill_null(-1)).fill_null(True).sum()
    return {"rows": len(joined), "wrong": wrong, "attribution_s": spent, "peak_mib": peak}


MEASUREMENTS = {"sqlite3, rows dropped": floor, "read": read, "read and attribute": attributed}


def measured(name: str, path: Path) -> None:
    """Run one measurement in this process and print it as JSON."""
    begun, cpu = time.perf_counter(), time.process_time()
    result = MEASUREMENTS[name](path)
    result["wall_s"] = time.perf_counter() - begun
    result["cpu_s"] = time.process_time() - cpu
    result["peak_mib"] = (
        result.get("peak_mib") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    )
    print(json.dumps(result))


def main() -> None:
    """Make the file, run each measurement in its own process, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--texts", choices=("registered", "torch"), default="registered")
    parser.add_argument(
        "--attribute", action="store_true", help="also attribute, and compare with the truth"
    )
    parser.add_argument("--keep", type=Path, help="make the file here, or reuse an existing one")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        measured(given.one[0], Path(given.one[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = given.keep or Path(folder) / "made.sqlite"
        if not path.exists():
            script = Path(__file__).with_name("make_nsys.py")
            subprocess.run(
                [
                    sys.executable,
                    script,
                    path,
                    "--kernels",
                    str(given.kernels),
                    "--texts",
                    given.texts,
                ],
                check=True,
            )
        base = None
        print(f"{'':24}{'rows':>13}{'wall s':>9}{'CPU s':>9}{'ratio':>7}{'peak MiB':>10}")
        for name in MEASUREMENTS:
            if name == "read and attribute" and not given.attribute:
                continue
            done = subprocess.run(
                [sys.executable, __file__, "--one", name, str(path)],
                check=True,
                capture_output=True,
                text=True,
            )
            row = json.loads(done.stdout)
            base = base or row["cpu_s"]
            more = f"  {row['wrong']} wrong" if "wrong" in row else ""
            print(
                f"{name:24}{row['rows']:>13,}{row['wall_s']:>9.1f}{row['cpu_s']:>9.1f}"
                f"{row['cpu_s'] / base:>7.2f}{row['peak_mib']:>10,.0f}{more}"
            )
        took = children.run(children.report(path))
        print(
            f"{'opscope report FILE':24}{'':>13}{took.wall:>9.1f}{took.cpu:>9.1f}"
            f"{took.cpu / base:>7.2f}{took.peak * 1024:>10,.0f}"
        )


if __name__ == "__main__":
    main()
