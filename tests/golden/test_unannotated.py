"""A trace without any annotation has the same wall, GPU and Tensor Core time and the same kernels.

DLProf's simple mode: real traces, from which every range is taken away, against themselves.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.reports.console import first_screen

NSYS = (
    "nsys_more/fuser_h200_pytest_nvtx.sqlite",
    "nsys_more/fuser_h200_test_matmul.sqlite",
    "nsys/cudf_2020.sqlite",
    "nsys/fsdp_h100x2_2026.sqlite",
)
NVPROF = "nvprof/language_model.sqlite"
KINETO = ("kineto/alexnet_cuda_sync_a100.json.gz", "kineto/timesformer_h100.json.gz")
#: What PyTorch's profiler records of the device and of the CUDA runtime.
OF_CUDA = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "ac2g")
DEVICE = (
    "device_busy", "device_time", "kernel_time", "tensor_core_time", "kernels", "copies", "devices",
    "launched_share",
)  # fmt: skip


def without_ranges(path: Path, folder: Path) -> Path:
    """Return a copy of the trace without what a framework or a program annotated."""
    copy = folder / path.name
    if path.name.endswith(".json.gz"):
        with gzip.open(path) as file:
            trace = json.load(file)
        trace["traceEvents"] = [
            one for one in trace["traceEvents"] if one.get("ph") == "M" or one.get("cat") in OF_CUDA
        ]
        with gzip.open(copy, "wt") as file:
            json.dump(trace, file)
        return copy
    shutil.copyfile(path, copy)
    with sqlite3.connect(copy) as database:
        tables = {row[0] for row in database.execute("select name from sqlite_master")}
        for table in (
            "NVTX_EVENTS",
            "CUPTI_ACTIVITY_KIND_MARKER",
            "CUPTI_ACTIVITY_KIND_MARKER_DATA",
        ):
            if table in tables:
                database.execute(f"delete from {table}")
    return copy


@pytest.mark.parametrize("name", [*NSYS, NVPROF, *KINETO])
def test_times_of_the_gpu_and_its_kernels_need_no_annotation(shared, tmp_path, name):
    whole = opscope.load(shared / name)
    bare = opscope.load(without_ranges(shared / name, tmp_path))
    assert len(whole.trace["ranges"]) > 0
    assert len(bare.trace["ranges"]) == 0
    annotated, row = (one.summary().row(0, named=True) for one in (whole, bare))
    assert {key: row[key] for key in DEVICE} == {key: annotated[key] for key in DEVICE}
    assert row["kernel_time"] > 0
    assert (
        row["wall_time"] * row["devices"] > row["device_busy"] > 0
    )  # busy is the sum of the devices
    assert row["device_unattributed_time"] == row["device_time"]
    assert row["steps"] == 0
    kernels = [by_name(one) for one in (whole, bare)]
    assert kernels[0].equals(kernels[1])


def by_name(profile: opscope.profile.Profile) -> pl.DataFrame:
    totals = profile.kernel_totals().group_by("name").agg(pl.col("calls", "total").sum())
    return totals.sort("name")


@pytest.mark.parametrize("name", [NSYS[0], NVPROF])
def test_the_first_screen_shows_kernels_in_place_of_ops(shared, tmp_path, name):
    bare = opscope.load(without_ranges(shared / name, tmp_path))
    titles = [table.title for table in first_screen(bare)]
    assert "Top kernels" in titles
    assert not [title for title in titles if title.startswith("Top ops")]
    annotated = [table.title for table in first_screen(opscope.load(shared / name))]
    assert "Top kernels" not in annotated
