"""Measure reading a million kernels of rocprofv3 (rocpd, CSV) beside plain reading of the same columns.

Usage: python benchmarks/rocm_read.py [--kernels N] [--times K]

Plain reading makes no trace: Polars reads the CSV with inferred types, and sqlite3 fetches a join of dispatches,
events and names of kernels. Each measurement has its own process; the least of K times is printed, with the ratio.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

T = 5_000_000_000_000
UUID = "_0001"
NAMES = 40
OURS = """
from opscope import readers
kernels = readers.open(sys.argv[1])["kernels"]
many, total = len(kernels), int((kernels["end"] - kernels["start"]).sum())
"""
POLARS = """
import polars as pl
rows = pl.read_csv(sys.argv[1])
many, total = len(rows), int((rows["End_Timestamp"] - rows["Start_Timestamp"]).sum())
"""
SQLITE = f"""
import sqlite3
rows = sqlite3.connect(sys.argv[1]).execute(
    'SELECT K.start, K."end", E.stack_id, S.kernel_name, K.pid, K.tid, K.agent_id, K.queue_id, K.stream_id, '
    'K.grid_size_x, K.grid_size_y, K.grid_size_z, K.workgroup_size_x, K.workgroup_size_y, K.workgroup_size_z, '
    'K.private_segment_size, K.group_segment_size, S.arch_vgpr_count, S.accum_vgpr_count, S.sgpr_count '
    'FROM rocpd_kernel_dispatch{UUID} K JOIN rocpd_event{UUID} E ON E.id = K.event_id '
    'JOIN rocpd_info_kernel_symbol{UUID} S ON S.id = K.kernel_id').fetchall()
many, total = len(rows), sum(row[1] - row[0] for row in rows)
"""
CHILD = """
import json, resource, sys, time
start = time.perf_counter()
{what}
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([seconds, peak, many, total]))
"""


def columns(many: int) -> pl.DataFrame:
    """The columns of rocprofv3's ``kernel_trace.csv`` for ``many`` kernels of 1 to 5 µs."""
    row = pl.int_range(many, dtype=pl.Int64)
    start = T + row * 6000
    return pl.select(
        pl.lit("KERNEL_DISPATCH").alias("Kind"),
        pl.lit("Agent 2").alias("Agent_Id"),
        (row % 4).alias("Queue_Id"),
        (row % 3).alias("Stream_Id"),
        pl.lit(4242).alias("Thread_Id"),
        (row + 1).alias("Dispatch_Id"),
        (row % NAMES + 1).alias("Kernel_Id"),
        pl.format(
            "void at::native::elementwise_kernel<{}, at::native::Functor<float> >(int, float*)",
            row % NAMES,
        ).alias("Kernel_Name"),
        (row + 10).alias("Correlation_Id"),
        start.alias("Start_Timestamp"),
        (start + 1000 + row % 4000).alias("End_Timestamp"),
        pl.lit(512).alias("LDS_Block_Size"),
        pl.lit(0).alias("Scratch_Size"),
        (8 * (row % NAMES) + 8).alias("VGPR_Count"),
        pl.lit(0).alias("Accum_VGPR_Count"),
        pl.lit(48).alias("SGPR_Count"),
        *(
            pl.lit(size).alias(f"Workgroup_Size_{axis}")
            for axis, size in (("X", 256), ("Y", 1), ("Z", 1))
        ),
        (256 * (row % 500 + 1)).alias("Grid_Size_X"),
        pl.lit(1).alias("Grid_Size_Y"),
        pl.lit(1).alias("Grid_Size_Z"),
    )


def write_rocpd(path: Path, frame: pl.DataFrame) -> None:
    """Write the same kernels as a rocpd database of version 3, with the keys that its schema declares."""
    key = "id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT"
    sizes = [f"{of}_size_{axis}" for of in ("workgroup", "grid") for axis in "xyz"]
    taken = ["Dispatch_Id", "Thread_Id", "Kernel_Id", "Queue_Id", "Stream_Id", "Start_Timestamp", "End_Timestamp",
             *(f"{of}_Size_{axis}" for of in ("Workgroup", "Grid") for axis in "XYZ")]  # fmt: skip
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute(f"CREATE TABLE rocpd_event{UUID} ({key}, category_id, stack_id, extdata)")
        db.execute(
            f'CREATE TABLE rocpd_kernel_dispatch{UUID} ({key}, tid, kernel_id, queue_id, stream_id, start, "end", '
            f"{', '.join(sizes)}, nid, pid, agent_id, dispatch_id, private_segment_size, group_segment_size, event_id)"
        )
        db.execute(f"CREATE TABLE rocpd_string{UUID} ({key}, string)")
        db.execute(
            f"CREATE TABLE rocpd_info_kernel_symbol{UUID} ({key}, kernel_name, display_name, group_segment_size, "
            "sgpr_count, arch_vgpr_count, accum_vgpr_count)"
        )
        events = frame.select(
            "Dispatch_Id", pl.lit(1), pl.col("Correlation_Id"), pl.lit("{}").alias("text")
        )
        db.executemany(f"INSERT INTO rocpd_event{UUID} VALUES (?, ?, ?, ?)", events.iter_rows())
        marks = ", ".join("?" * len(taken))
        db.executemany(
            f"INSERT INTO rocpd_kernel_dispatch{UUID} SELECT v.*, 1, 4242, 2, v.column1, 0, 768, v.column1 "
            f"FROM (VALUES ({marks})) v",
            frame.select(taken).iter_rows(),
        )
        names = frame.select("Kernel_Id", "Kernel_Name", "VGPR_Count").unique(
            "Kernel_Id", keep="first"
        )
        db.executemany(
            f"INSERT INTO rocpd_info_kernel_symbol{UUID} VALUES (?, ?, ?, 512, 48, ?, 0)",
            [(number, name, name, vgpr) for number, name, vgpr in names.iter_rows()],
        )
        db.execute(f"INSERT INTO rocpd_string{UUID} VALUES (1, 'KERNEL_DISPATCH')")
    db.close()


def measured(what: str, path: Path, times: int) -> tuple[float, float, int, int]:
    """Return the least seconds of ``times`` processes, the memory (MiB) and what was read."""
    best: tuple[float, float, int, int] | None = None
    for _ in range(times):
        done = subprocess.run(
            [sys.executable, "-c", CHILD.format(what=what), str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(done.stderr)
        found = tuple(json.loads(done.stdout))
        best = found if best is None or found[0] < best[0] else best  # type: ignore[assignment]
    assert best is not None
    return best


def main() -> None:
    """Make the files, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        frame = columns(given.kernels)
        table, database = Path(folder) / "kernel_trace.csv", Path(folder) / "results.db"
        frame.write_csv(table)
        write_rocpd(database, frame)
        del frame
        for path, name, plain in ((table, "Polars", POLARS), (database, "sqlite3", SQLITE)):
            ours, theirs = (measured(what, path, given.times) for what in (OURS, plain))
            if ours[2:] != theirs[2:]:
                sys.exit(
                    f"{path.name}: {ours[2:]} kernels and ns here, {theirs[2:]} in plain reading"
                )
            print(
                f"{path.name}, {path.stat().st_size >> 20} MiB, {ours[2]:,} kernels, {ours[3]:,} ns of kernels"
            )
            for who, (seconds, peak, *_) in (
                ("opscope, to a trace", ours),
                (f"{name}, rows only", theirs),
            ):
                print(f"  {who:22}{seconds:7.2f} s{peak:8.0f} MiB")
            print(f"  ratio {ours[0] / theirs[0]:.2f}")


if __name__ == "__main__":
    main()
