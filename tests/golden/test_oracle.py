"""Two reports of Nsight Systems 2023.4 on a synthetic file of 200,000 kernels, equal row for row.

``oracle.json`` was recorded by scripts/record_oracle.py; the file is made anew from its seed.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import polars as pl
import pytest

from tests import traces
from tests.script import module_at

ROOT = Path(__file__).resolve().parents[2]
RECORDED = json.loads((Path(__file__).parent / "oracle.json").read_text())


@pytest.fixture(scope="module")
def oracle():
    return module_at("scripts/record_oracle.py")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The ops that launched something, the kernels, and which row of the file an op's range is."""
    path = tmp_path_factory.mktemp("oracle") / "made.sqlite"
    module_at("benchmarks/make_nsys.py").make(path, **RECORDED["made"])
    with sqlite3.connect(path) as database:
        first = database.execute("SELECT min(rowid) FROM NVTX_EVENTS WHERE eventType = 59")
        offset = first.fetchone()[0]
    profile = traces.load(path)
    pid = profile.trace["processes"].select("process", PID="pid")
    ops = (
        profile.ops()
        .join(pid, on="process", maintain_order="left")
        .join(
            profile.trace["ranges"].select(op_id="id", Name="library:" + pl.col("text").cast(str)),
            on="op_id",
            maintain_order="left",
        )
    )
    assert len(ops) == len(profile.trace["ranges"])  # all four levels
    return ops.with_columns(Style=pl.lit("PushPop"), TID="thread"), profile.kernels(), offset


def inside(ops: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """(op_id, start, end, duration, kernel): each kernel with its op and with all ops around that."""
    pairs = kernels.filter(pl.col("op_id").is_not_null()).select(
        "op_id", "start", "end", "duration", kernel=pl.col("name").cast(str)
    )
    parents = ops.select("op_id", "parent_id")
    levels = [pairs]
    while len(levels[-1]):
        levels.append(
            levels[-1]
            .join(parents, on="op_id")
            .drop("op_id")
            .filter(pl.col("parent_id").is_not_null())
            .rename({"parent_id": "op_id"})
            .select(pairs.columns)
        )
    return pl.concat(levels)


def projected(ops: pl.DataFrame, kernels: pl.DataFrame, offset: int) -> pl.DataFrame:
    """nvtx_gpu_proj_trace's columns from ours."""
    span = (
        inside(ops, kernels)
        .group_by("op_id")
        .agg(
            pl.col("start").min().alias("Projected Start (ns)"),
            (pl.col("end").max() - pl.col("start").min()).alias("Projected Duration (ns)"),
        )
    )
    ops = ops.join(span, on="op_id", how="inner").sort("op_id")
    children = ops.group_by("parent_id").len("NumChild").cast({"NumChild": pl.Int64})
    ops = ops.join(children, left_on="op_id", right_on="parent_id", how="left").with_columns(
        RangeId=pl.col("op_id") + offset,
        ParentId=pl.col("parent_id") + offset,
        NumChild=pl.col("NumChild").fill_null(0),
    )
    stack = dict[int, str]()
    for own, parent in ops.select("RangeId", "ParentId").rows():  # parents come first
        stack[own] = f"{stack[parent] if parent is not None else ''}:{own}"
    return ops.select(
        "Name", "Projected Start (ns)", "Projected Duration (ns)",
        pl.col("start").alias("Orig Start (ns)"), pl.col("cpu_time").alias("Orig Duration (ns)"),
        "Style", "PID", "TID", NumGPUOps="kernels", Lvl="depth", NumChild="NumChild",
        RangeId="RangeId", ParentId="ParentId",
        RangeStack=pl.Series([stack[own] for own in ops["RangeId"]]),
    )  # fmt: skip


def kernel_sums(ops: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """nvtx_kern_sum's columns from ours; kernels without an op stand in rows without a range."""
    place = ["Name", "Style", "PID", "TID"]
    held = inside(ops, kernels).join(ops.select("op_id", *place), on="op_id")
    alone = kernels.filter(pl.col("op_id").is_null()).select(
        *(pl.lit(None).alias(name) for name in place),
        op_id=pl.lit(None, pl.Int64),
        duration="duration",
        kernel=pl.col("name").cast(str),
    )
    return (
        pl.concat([held, alone], how="diagonal_relaxed")
        .group_by(*place, "kernel")
        .agg(
            pl.col("op_id").drop_nulls().n_unique().cast(pl.Int64).alias("NVTX Inst"),
            pl.len().cast(pl.Int64).alias("Kern Inst"),
            pl.col("duration").sum().alias("Total Time (ns)"),
            pl.col("duration").median().alias("Med (ns)"),
            pl.col("duration").min().alias("Min (ns)"),
            pl.col("duration").max().alias("Max (ns)"),
        )
        .rename({"Name": "NVTX Range", "kernel": "Kernel Name"})
    )


@pytest.mark.parametrize("report", RECORDED["reports"])
def test_equal_row_for_row(oracle, made, report):
    ops, kernels, offset = made
    frames = {
        "nvtx_gpu_proj_trace": lambda: projected(ops, kernels, offset),
        "nvtx_kern_sum": lambda: kernel_sums(ops, kernels),
    }
    assert oracle.summarise(report, frames[report]()) == RECORDED["reports"][report]


def test_the_digest_tells_one_row_from_another(oracle, made):
    ops, kernels, offset = made
    right = projected(ops, kernels, offset)
    wrong = right.with_columns(NumGPUOps=pl.col("NumGPUOps") + (pl.int_range(pl.len()) == 70_000))
    one, other = (oracle.summarise("nvtx_gpu_proj_trace", f)["blocks"] for f in (right, wrong))
    assert [n for n, (a, b) in enumerate(zip(one, other, strict=True)) if a != b] == [
        70_000 // 4096
    ]
