"""Measure the way from an Nsight Systems file to the report, at several sizes: time, memory, correctness.

Usage: python benchmarks/end_to_end.py [--kernels 100000 1000000 10000000] [--texts registered torch]
       [--parts PART ...] [--folder DIR]

For each kind of text and each size, in a separate process each: the floor (sqlite3 reads the same columns
and drops the rows); the whole command ``opscope report FILE``; a comparison of every kernel's range with the truth
from the generator; reading the file and saving a profile, with what saving takes over what reading took, and
the peak of both over the report's; ``opscope report`` of that profile, which computes its results and keeps
them, and again. Ratios are to the floor's wall and CPU seconds. ``torch`` texts are like those of ``emit_nvtx``, each different;
``registered`` texts are like opscope's. The last lines are the exponents of wall time over size.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import children
from nsys_read import floor


def exact(path: Path) -> dict[str, object]:
    """Count the kernels that have a range other than the true one."""
    import polars as pl

    import opscope

    profile = opscope.load(path)
    found = profile.trace["kernels"].select("process", "correlation")
    found = found.with_columns(pl.Series("op", profile.attribution.kernels.op).cast(pl.Int64))
    truth = pl.read_parquet(path.with_suffix(".truth.parquet"))
    joined = found.join(truth, on=["process", "correlation"], how="full")
    wrong = (joined["op"] != joined["range"].fill_null(-1)).fill_null(True).sum()
    row = profile.summary().row(0, named=True)
    assert row["attributed_time"] + row["unattributed_time"] == row["kernel_time"]
    return {"of": len(joined), "wrong": int(wrong)}


def save(path: Path) -> dict[str, object]:
    """Read the file and save the profile; return wall and CPU seconds of both parts, and saving's over
    reading's."""
    import opscope

    laps, spent, lasted = {}, [], []
    begun, cpu = time.perf_counter(), time.process_time()
    profile = opscope.load(path)
    for lap in ("read", "save"):
        if lap == "save":
            profile.save(path.with_suffix(".opscope"), force=True)
        spent.append(time.process_time() - cpu)
        lasted.append(time.perf_counter() - begun)
        laps[lap] = f"{lasted[-1]:.1f} s, CPU {spent[-1]:.1f}"
        begun, cpu = time.perf_counter(), time.process_time()
    over = f"{lasted[1] / lasted[0]:.2f}, CPU {spent[1] / spent[0]:.2f}"
    return {**laps, "saving / reading": over}


REPORT, SAVED = "opscope report FILE", "read, and save"
FIRST, AGAIN = "opscope report PROFILE", "opscope report again"
CHILDREN = {"floor": floor, "truth": exact, SAVED: save}
PARTS = ("floor", REPORT, "truth", SAVED, FIRST, AGAIN)


def measured(part: str, path: Path) -> tuple[children.Took, str]:
    """Run one part; return its measurements and its own output."""
    if part == REPORT:
        return children.run(children.report(path)), ""
    if part in (FIRST, AGAIN):
        return children.run(children.report(path.with_suffix(".opscope"))), ""
    took = children.run([sys.executable, __file__, "--one", part, path])
    told = {k: v for k, v in json.loads(took.said).items() if k != "rows"}
    return took, "".join(f"  {name} {value}" for name, value in told.items())


def sizes(texts: str, given: argparse.Namespace, folder: Path) -> None:
    """Make the files with one kind of text, run the parts, print the table and the exponents."""
    from make_nsys import make

    spent: dict[str, list[float]] = {part: [] for part in given.parts}
    for kernels in given.kernels:
        path = folder / f"{texts}-{kernels}.sqlite"
        if not path.exists():
            make(path, kernels, style=texts)
        base = None
        peaks: dict[str, float] = {}
        for part in given.parts:
            took, told = measured(part, path)
            base = base or took
            peaks[part] = took.peak
            if part in (SAVED, FIRST) and REPORT in peaks:
                told += f"  peak / report's peak {took.peak / peaks[REPORT]:.2f}"
            spent[part].append(took.wall)
            print(
                f"{texts:12}{kernels:>10,}  {part:24}{took.wall:>8.2f}{took.cpu:>8.2f}"
                f"{took.wall / base.wall:>7.2f}{took.cpu / base.cpu:>7.2f}{took.peak:>10.2f}{told}",
                flush=True,
            )
    if len(given.kernels) > 1:
        for part, seconds in spent.items():
            power = children.growth(given.kernels, seconds)
            print(f"{texts}: {part}: time grows as size to the power of {power:.2f}")


def main() -> None:
    """Read the command line and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument(
        "--texts", nargs="+", choices=("registered", "torch"), default=["registered", "torch"]
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--folder", type=Path, help="keep the files here, and reuse existing ones")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(CHILDREN[given.one[0]](Path(given.one[1]))))
        return
    print(
        f"{'texts':12}{'kernels':>10}  {'part':24}{'wall s':>8}{'CPU s':>8}{'× wall':>7}{'× CPU':>7}"
        f"{'peak GiB':>10}"
    )
    with tempfile.TemporaryDirectory() as temporary:
        for texts in given.texts:
            sizes(texts, given, given.folder or Path(temporary))


if __name__ == "__main__":
    main()
