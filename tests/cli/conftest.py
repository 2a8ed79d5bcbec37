"""Fixtures with a small complete profile: steps, layers, ops, and kernels, one of them without an op."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.tables.trace import Trace
from opscope.profile import Profile

MM = "aten::mm(f16[64,32], f16[32,16]) -> f16[64,16] on cuda:0 @/home/me/train.py:42 < /home/me/main.py:7"
RELU = "aten::relu(f16[64,16]) -> f16[64,16] on cuda:0"
CUSTOM = "mine::op(f16[64,16]) -> f16[64,16] on cuda:0"


@pytest.fixture(scope="session")
def trace() -> Trace:
    """Two steps of a layer that calls mm, relu and an unknown op, with a kernel each, and a stray kernel."""
    ranges, calls, kernels = [], [], []
    for step in range(2):
        at = step * 100_000
        ranges.append((at, at + 90_000, "opscope.step", "step", f"step {step}"))
        ranges.append((at + 1_000, at + 80_000, "opscope.torch", "layer", f"Net.layers.{step}"))
        for number, text in enumerate((MM, RELU, CUSTOM)):
            start = at + 2_000 + number * 20_000
            ranges.append((start, start + 10_000, "opscope.torch", "forward", text))
            calls.append((start + 1_000, start + 2_000, step * 10 + number))
            kernels.append(
                (
                    start + 5_000,
                    start + 8_000 + number,
                    f"k{number}<float>(int)",
                    step * 10 + number,
                )
            )
    kernels.append((150_000, 151_000, "stray", 99))
    common = {"process": 0, "thread": 1}
    tables = {
        "processes": pl.DataFrame({"process": [0], "pid": [1], "host": ["h"], "start_time": [5]}),
        "ranges": pl.DataFrame(
            ranges, schema=["start", "end", "domain", "category", "text"], orient="row"
        )
        .with_row_index("id")
        .with_columns(pl.lit("pushpop").alias("kind"), **{k: pl.lit(v) for k, v in common.items()}),
        "calls": pl.DataFrame(
            calls, schema=["start", "end", "correlation"], orient="row"
        ).with_columns(
            pl.lit("cudaLaunchKernel").alias("name"), **{k: pl.lit(v) for k, v in common.items()}
        ),
        "kernels": pl.DataFrame(
            kernels, schema=["start", "end", "name", "correlation"], orient="row"
        ).with_columns(process=pl.lit(0), device=pl.lit(0), stream=pl.lit(7)),
        "memops": pl.DataFrame(schema={"process": pl.Int32}),
        "notes": pl.DataFrame(
            {
                "severity": ["warning", "info"],
                "what": ["a clock jumped", "fine"],
                "how_many": [2, 1],
            }
        ),
    }
    return Trace.of(tables, {"format": "test"})


@pytest.fixture
def profile(trace) -> Profile:
    return Profile(trace)


@pytest.fixture
def saved(profile, tmp_path, monkeypatch) -> str:
    """Save the profile into an empty folder, make that the working directory, return the profile's name."""
    monkeypatch.chdir(tmp_path)
    profile.save("run.opscope")
    return "run.opscope"
