"""Measure DLProf's eight reports of a saved profile: the command that people run, with its start and its files.

Usage: python benchmarks/dlprof.py [--kernels N] [--ops M] [--keep DIR] [--profile FILE.opscope]

Without --profile it makes a training in which a step of M ops repeats until there are N kernels: each op in a
layer of its own, its launch and its kernel inside it, a step around each repeat. The first line is the target:
a million kernels in 20 s and 2 GB on two cores. Wall and CPU seconds are both printed, because a busy machine
stretches only the wall time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import children
import numpy as np
import polars as pl

OPS = ("aten::addmm", "aten::mm", "aten::relu", "aten::add", "aten::layer_norm", "aten::softmax")
KERNELS = (
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>>(int, T2)",
    "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float>(int, T2, const T1 *)",
)
EACH_NS = 20_000


def training(path: Path, kernels: int, ops: int) -> None:
    """Save a profile of ``kernels`` kernels, one an op, ``ops`` a step."""
    from opscope.core.tables.trace import Trace
    from opscope.profile import Profile

    steps = -(-kernels // ops)
    number = np.arange(kernels)
    start = number * EACH_NS
    place = number % ops
    texts = pl.Series(
        [f"{OPS[i % len(OPS)]}(f32[{8 + i % 13},64], f32[64,64])" for i in range(ops)]
    )
    layers = pl.Series([f"model.block{i // 8}.part{i % 8}" for i in range(ops)])
    same = {"process": 0, "thread": 1, "kind": "pushpop", "domain": "opscope.torch"}
    first = np.arange(steps) * ops * EACH_NS

    def ranges(begin: np.ndarray, end: np.ndarray, text: pl.Series, category: str) -> pl.DataFrame:
        return pl.DataFrame({"start": begin, "end": end, "text": text}).with_columns(
            pl.lit(category).alias("category"), *(pl.lit(v).alias(k) for k, v in same.items())
        )

    tables = {
        "processes": pl.DataFrame({"process": [0]}),
        "devices": pl.DataFrame({"process": [0], "device": [0], "name": ["NVIDIA A100-SXM4-80GB"]}),
        "ranges": pl.concat(
            [
                ranges(
                    first,
                    first + ops * EACH_NS,
                    pl.Series([f"step {one}" for one in range(steps)]),
                    "step",
                ),
                ranges(start + 1, start + 15_000, layers.gather(place), "layer"),
                ranges(start + 1_000, start + 14_000, texts.gather(place), "forward"),
            ]
        ).sort("start", maintain_order=True),
        "calls": pl.DataFrame(
            {"start": start + 2_000, "end": start + 5_000, "correlation": number}
        ).with_columns(
            pl.lit(0).alias("process"),
            pl.lit(1).alias("thread"),
            pl.lit("cudaLaunchKernel").alias("name"),
        ),
        "kernels": pl.DataFrame(
            {
                "start": start + 6_000,
                "end": start + 6_000 + 1_000 + place * 7 % 9_000,
                "correlation": number,
                "name": pl.Series(KERNELS).gather(place % len(KERNELS)),
            }
        ).with_columns(
            pl.lit(0).alias("process"),
            pl.lit(0).alias("device"),
            pl.lit("128,1,1").alias("grid"),
            pl.lit("256,1,1").alias("block"),
        ),
    }
    Profile(Trace.of(tables, {"format": "made"})).save(path)


def main() -> None:
    """Make the profile unless one is given, write its reports, and print what that took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--ops", type=int, default=2_000)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--profile", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.keep or Path(scratch)
        source = asked.profile or folder / "training.opscope"
        if not source.exists():
            folder.mkdir(parents=True, exist_ok=True)
            training(source, asked.kernels, asked.ops)
        print("target: 1,000,000 kernels, 20 s, 2 GB, two cores")
        for formats in ("csv", "csv,json,parquet"):
            command = [
                sys.executable, "-m", "opscope", "report", source, "--style", "dlprof", "--reports",
                "all", "--formats", formats, "--output-path", folder / "reports", "--force",
            ]  # fmt: skip
            took = children.run(command)
            size = sum(one.stat().st_size for one in (folder / "reports").iterdir())
            print(
                f"{formats}: {took.wall:.1f} s wall, {took.cpu:.1f} s CPU, {took.peak:.2f} GiB,"
                f" {size / 1e6:,.0f} MB of files"
            )


if __name__ == "__main__":
    main()
