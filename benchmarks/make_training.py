"""Save a made profile of a training: kernels with calls, ops, layers and steps.

Usage: python benchmarks/make_training.py OUT.opscope [--kernels N]

A step has 100 layers. In each, ten ops run forward on one thread and ten backward on another; each op is around the
op that launches its kernel. So a kernel has a call and two ranges, and a backward op its forward op by sequence
number.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

LAYERS, PER_LAYER = 100, 10
#: An op takes so long on the host, and its kernel on the device, ns.
OP, KERNEL = 10_000, 8_000
BEGIN = 1_700_000_000_000_000_000
NAMES = ("ampere_fp16_s16816gemm_fp16_128x128", "elementwise_kernel", "reduce_kernel")
FORWARD, BACKWARD = 1, 2


def one_step() -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return ranges, calls and kernels of a step that begins at 0, by start; numbers in it count from 0."""
    half = LAYERS * PER_LAYER
    texts: list[tuple[Any, ...]] = [(0, 2 * half * OP - 1, FORWARD, "step", "step", None)]
    calls, kernels = [], []
    for layer in range(LAYERS):
        begin = layer * PER_LAYER * OP
        texts.append((begin, begin + PER_LAYER * OP - 1, FORWARD, f"net.{layer}", "layer", None))
    for number in range(2 * half):
        backward, begin = number >= half, number * OP
        sequence = 2 * half - 1 - number if backward else number
        thread = BACKWARD if backward else FORWARD
        kind = "backward" if backward else "forward"
        rows = 16 * (1 + sequence % 50)
        inside = f"aten::mm(f16[{rows},512], f16[512,512]) -> f16[{rows},512] on cuda:0"
        outer = "MmBackward0()" if backward else f"aten::linear(f16[{rows},512], f16[512,512])"
        texts.append((begin + 100, begin + OP - 100, thread, outer, kind, sequence))
        texts.append((begin + 500, begin + OP - 500, thread, inside, kind, None))
        calls.append((begin + 1_000, begin + 4_000, thread, number))
        kernels.append((begin + 5_000, begin + 5_000 + KERNEL, NAMES[number % 3], number))
    texts.sort(key=lambda row: row[0])
    ranges = pl.DataFrame(
        texts, ["start", "end", "thread", "text", "category", "seq"], orient="row"
    )
    launches = pl.DataFrame(calls, ["start", "end", "thread", "correlation"], orient="row")
    executed = pl.DataFrame(kernels, ["start", "end", "name", "correlation"], orient="row")
    return ranges, launches, executed


def repeated(one: pl.DataFrame, steps: int) -> pl.DataFrame:
    """Return the rows of so many steps, one after the other."""
    many = 2 * LAYERS * PER_LAYER
    base = np.arange(steps, dtype=np.int64)
    columns = []
    for column in one.get_columns():
        add = {"start": many * OP, "end": many * OP, "correlation": many, "seq": many // 2}
        if column.dtype == pl.String:
            made = column.cast(pl.Categorical).gather(
                np.tile(np.arange(len(one), dtype=np.uint32), steps)
            )
        else:
            first = BEGIN if column.name in ("start", "end") else 0
            moved = base[:, None] * add.get(column.name, 0) + first
            known = column.is_not_null().to_numpy()
            made = pl.Series(column.name, (column.fill_null(0).to_numpy() + moved).ravel())
            if not known.all():
                made = made.set(pl.Series(~np.tile(known, steps)), None)
        columns.append(made)
    return pl.DataFrame(columns)


def make(path: Path, kernels: int = 1_000_000) -> None:
    """Save a profile of at least so many kernels."""
    from opscope.core.tables.trace import Trace
    from opscope.profile import Profile

    ranges, calls, executed = one_step()
    steps = -(-kernels // len(executed))
    same = pl.lit(0, pl.Int32).alias("process")
    domain, numbered = pl.lit("opscope.torch", pl.Categorical), pl.int_range(pl.len())
    text = pl.when(pl.col("category") == "step")
    number = pl.concat_str(pl.lit("step "), (pl.col("category") == "step").cum_sum())
    every = repeated(ranges, steps).with_columns(
        same,
        domain.alias("domain"),
        numbered.alias("id"),
        pl.lit(FORWARD, pl.Int64).alias("fwd_thread"),
        pl.lit("pushpop", pl.Categorical).alias("kind"),
    )
    marked = every.filter(pl.col("category") == "step").with_columns(
        text.then(number).cast(pl.Categorical).alias("text")
    )
    every = every.with_columns(
        every["text"].scatter(
            np.flatnonzero((every["category"] == "step").to_numpy()), marked["text"]
        )
    )
    launches = repeated(calls, steps).with_columns(
        same, pl.lit("cudaLaunchKernel", pl.Categorical).alias("name")
    )
    on_device = repeated(executed, steps).with_columns(
        same,
        pl.lit(0, pl.Int32).alias("device"),
        pl.lit(7, pl.Int64).alias("stream"),
    )
    devices = pl.DataFrame({"process": [0], "device": [0], "name": ["NVIDIA H100 80GB HBM3"]})
    tables = {"ranges": every, "calls": launches, "kernels": on_device, "devices": devices}
    Profile(Trace.of(tables, {"format": "made"})).save(path)


def main() -> None:
    """Read the command line and save the profile."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("path", type=Path)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    given = parser.parse_args()
    make(given.path, given.kernels)


if __name__ == "__main__":
    main()
