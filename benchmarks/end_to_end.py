"""From an Nsight Systems file to the answer, at several sizes: time, memory, growth, and the truth.

Usage: python benchmarks/end_to_end.py [--kernels 100000 1000000 10000000] [--folder DIR]

For each size, each in a process of its own: the floor (sqlite3 reads the same columns and drops the
rows); load, attribution, summary and top kernels; every kernel's range against the truth that the
generator wrote; and the same answer from the saved profile. Ratios are of CPU seconds to the floor's.
The last line is the exponent of time over size, fitted to the logarithms: 1 is linear.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from make_nsys import make
from nsys_read import floor


def answer(path: Path) -> dict[str, object]:
    """What a user asks first, and the seconds of each part."""
    import opscope

    laps = {}
    begun = time.perf_counter()
    profile = opscope.load(path)
    laps["load"] = time.perf_counter() - begun
    if not profile._stored:
        begun = time.perf_counter()
        _ = profile.attribution
        laps["attribute"] = time.perf_counter() - begun
    begun = time.perf_counter()
    row = profile.summary().row(0, named=True)
    top = profile.kernel_totals().head(10)
    laps["summary"] = time.perf_counter() - begun
    assert row["attributed_time"] + row["unattributed_time"] == row["kernel_time"]
    return {"rows": row["kernels"], "laps": laps, "top": len(top)}


def exact(path: Path) -> dict[str, object]:
    """How many kernels have another range than the true one."""
    import polars as pl

    import opscope

    profile = opscope.load(path)
    found = profile.trace["kernels"].select("process", "correlation")
    found = found.with_columns(pl.Series("op", profile.attribution.kernels.op).cast(pl.Int64))
    truth = pl.read_parquet(path.with_suffix(".truth.parquet"))
    joined = found.join(truth, on=["process", "correlation"], how="full")
    wrong = (joined["op"] != joined["range"].fill_null(-1)).fill_null(True).sum()
    return {"rows": len(joined), "wrong": int(wrong)}


def save(path: Path) -> dict[str, object]:
    """The profile on disk, with what was made of the trace."""
    import opscope

    begun = time.perf_counter()
    profile = opscope.load(path)
    profile.summary()
    laps = {"to the summary": time.perf_counter() - begun}
    begun = time.perf_counter()
    profile.save(path.with_suffix(".opscope"), force=True)
    laps["save"] = time.perf_counter() - begun
    return {"laps": laps}


PARTS = {
    "floor": floor,
    "from SQLite": answer,
    "truth": exact,
    "save": save,
    "from the saved profile": lambda path: answer(path.with_suffix(".opscope")),
}


def measured(part: str, path: Path) -> None:
    """Run one part in this process and print what it took as JSON."""
    begun, cpu = time.perf_counter(), time.process_time()
    result = dict(PARTS[part](path))
    result["wall"] = time.perf_counter() - begun
    result["cpu"] = time.process_time() - cpu
    result["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps(result))


def main() -> None:
    """Make the files, run the parts, print the table and the exponent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--folder", type=Path, help="keep the files here, and use those that are")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        measured(given.one[0], Path(given.one[1]))
        return
    print(f"{'kernels':>10}  {'part':24}{'wall s':>8}{'CPU s':>8}{'ratio':>7}{'peak GiB':>10}")
    spent = []
    with tempfile.TemporaryDirectory() as temporary:
        for kernels in given.kernels:
            path = (given.folder or Path(temporary)) / f"made-{kernels}.sqlite"
            if not path.exists():
                make(path, kernels)
            base = None
            for part in PARTS:
                command = [sys.executable, __file__, "--one", part, str(path)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                row = json.loads(done.stdout)
                base = base or row["cpu"]
                more = f"  {row['wrong']} of {row['rows']:,} wrong" if "wrong" in row else ""
                more += "".join(f"  {k} {v:.1f}" for k, v in row.get("laps", {}).items())
                print(
                    f"{kernels:>10,}  {part:24}{row['wall']:>8.2f}{row['cpu']:>8.2f}"
                    f"{row['cpu'] / base:>7.2f}{row['peak']:>10.2f}{more}",
                    flush=True,
                )
                if part == "from SQLite":
                    spent.append(row["wall"])
    if len(spent) > 1:
        slope = np.polyfit(np.log(given.kernels), np.log(spent), 1)[0]
        print(f"time grows as size to the power of {slope:.2f}")


if __name__ == "__main__":
    main()
