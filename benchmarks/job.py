"""Measure how long it takes to align the clocks of many machines by the collectives of their ranks.

    python benchmarks/job.py [--clocks 512] [--collectives 200] [--pipeline]

One rank a machine; each clock has an offset and a drift of its own. ``--pipeline``: there is no collective of
all ranks, only one of each two neighbours. Prints processor seconds, and the largest distance of a moved time
from the true one beside the stated error.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import polars as pl

from opscope.core.attribution.attribute import attribute
from opscope.core.job.clocks import aligned
from opscope.core.job.exchanges import exchanges
from opscope.core.tables.trace import Trace

SECOND = 1_000_000_000


def made(clocks: int, collectives: int, pipeline: bool) -> tuple[Trace, np.ndarray]:
    """Return a trace of one rank per clock, and the true end of each row of ``kernels``."""
    random = np.random.default_rng(7)
    gap = 20_000_000
    begun = np.arange(collectives) * gap + random.integers(0, gap // 4, collectives) + 10 * SECOND
    offset = random.integers(-(10**15), 10**15, clocks) * (np.arange(clocks) > 0)
    drift = random.uniform(-50e-6, 50e-6, clocks) * (np.arange(clocks) > 0)
    groups = [(0, clocks)] if not pipeline else [(one, one + 2) for one in range(clocks - 1)]
    parts = []
    for number, (first, last) in enumerate(groups):
        ranks = np.repeat(np.arange(first, last), collectives)
        entered = np.tile(begun + number * 40_000, last - first) - random.integers(
            1_000, 30_000, len(ranks)
        )
        over = entered.reshape(last - first, collectives).max(0) + 20_000
        left = np.tile(over, last - first) + random.exponential(2_000, len(ranks)).astype(np.int64)
        text = (
            "c10d::allreduce_([f32[64]], _) -> ([=0], _) "
            f'{{process_group="{number}", ranks={last - first}, members="{first}-{last - 1}"}}'
        )
        parts.append(
            pl.DataFrame({"process": ranks, "entered": entered, "left": left}).with_columns(
                pl.lit(text).alias("text")
            )
        )
    rows = pl.concat(parts).sort("process", "entered")
    process = rows["process"].to_numpy()
    correlation = np.arange(len(rows)) + 1

    def clock(true: np.ndarray) -> np.ndarray:
        return true + offset[process] + np.rint(drift[process] * true).astype(np.int64)

    entered, left = rows["entered"].to_numpy(), rows["left"].to_numpy()
    whose = pl.DataFrame({"process": process, "thread": np.ones(len(rows), np.int64)})
    tables = {
        "processes": pl.DataFrame(
            {"process": range(clocks), "host": [f"h{one}" for one in range(clocks)],
             "rank": range(clocks), "clock_domain": range(clocks)}
        ),
        "clocks": pl.DataFrame(
            {"clock_domain": range(clocks), "kind": ["unix"] * clocks,
             "machine": [f"m{one}" for one in range(clocks)]}
        ),
        "ranges": whose.with_columns(
            id=pl.Series(np.arange(len(rows))), start=pl.Series(clock(entered - 900)),
            end=pl.Series(clock(entered - 500)), domain=pl.lit("opscope.torch"),
            category=pl.lit("communication"), kind=pl.lit("pushpop"), text=rows["text"],
        ),
        "calls": whose.with_columns(
            start=pl.Series(clock(entered - 800)), end=pl.Series(clock(entered - 700)),
            name=pl.lit("cudaLaunchKernel"), correlation=pl.Series(correlation),
        ),
        "kernels": pl.DataFrame({"process": process}).with_columns(
            device=pl.lit(0), stream=pl.lit(7), start=pl.Series(clock(entered)),
            end=pl.Series(clock(left)), name=pl.lit("ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
            correlation=pl.Series(correlation),
        ),
    }  # fmt: skip
    return Trace.of(tables), left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clocks", type=int, default=512)
    parser.add_argument("--collectives", type=int, default=200)
    parser.add_argument("--pipeline", action="store_true")
    told = parser.parse_args()
    trace, true = made(told.clocks, told.collectives, told.pipeline)
    began = time.process_time()
    exchanges(attribute(trace))
    found = time.process_time() - began
    began = time.process_time()
    moved = aligned(trace)
    took = time.process_time() - began
    off = np.abs(moved["kernels"]["end"].to_numpy() - true)
    error = moved["clocks"]["error_ns"].fill_null(-1).to_numpy()
    print(
        f"{told.clocks} clocks × {told.collectives} collectives: {took:.2f} s of processor time, of which"
        f" {found:.2f} s to find the collectives"
    )
    print(
        f"largest distance {off.max()} ns; stated error: median {np.median(error[1:]):.0f} ns, "
        f"largest {error.max()} ns; aligned {int((moved['clocks']['collectives'] > 0).sum())} of {told.clocks - 1}"
    )
    within = off.reshape(-1) <= error[moved["kernels"]["process"].to_numpy()] + 2
    print(f"within the error: {within.mean():.2%} of the times")


if __name__ == "__main__":
    main()
