"""The Nsight Systems reader on real exports of 2020, 2022 and 2026."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from opscope.readers.errors import BadInput
from opscope.readers.nsys import reader as nsys

#: Kernels: in a range (count, ns), without a launch (count, ns), outside any range.
REFERENCE = {
    "nsys/fsdp_h100x2_2026.sqlite": (3986, 516_689_349, 24, 18_511_301, 0),
    "nsys/cudf_2020.sqlite": (268, 85_847_520, 0, 0, 0),
    "dlprof/nsys_profile.sqlite": (59, 589_147, 0, 0, 0),
}
INNERMOST = {
    "aten::copy_": 1816, "aten::add": 505, "aten::mul": 501, "aten::addmm": 335, "aten::pow": 134,
    "aten::mean": 134, "aten::rsqrt": 134, "aten::cat": 129, "aten::native_layer_norm": 102,
    "flash_attn::_flash_attn_forward": 66, "ncclGroupEnd": 64,
}  # fmt: skip


def brute_force(trace) -> tuple[Counter, tuple[int, int, int, int, int]]:
    """For each kernel the shortest range on its launch's thread that holds the whole call."""
    calls = {
        (process, correlation): (thread, start, end)
        for process, correlation, thread, start, end in trace["calls"]
        .select("process", "correlation", "thread", "start", "end")
        .iter_rows()
    }
    ranges = trace["ranges"].filter(pl.col("kind") != "mark")
    process, thread, start, end = (
        ranges[name].to_numpy() for name in ("process", "thread", "start", "end")
    )
    texts = ranges["text"].cast(pl.String)
    names: Counter = Counter()
    inside = inside_ns = lost = lost_ns = outside = 0
    for of, correlation, begun, ended in (
        trace["kernels"].select("process", "correlation", "start", "end").iter_rows()
    ):
        call = calls.get((of, correlation))
        if call is None:
            lost, lost_ns = lost + 1, lost_ns + ended - begun
            continue
        holds = np.flatnonzero(
            (process == of) & (thread == call[0]) & (start <= call[1]) & (end >= call[2])
        )
        if not len(holds):
            outside += 1
            continue
        inside, inside_ns = inside + 1, inside_ns + ended - begun
        text = texts[int(holds[np.argmin((end - start)[holds])])]
        names[text.partition(", ")[0]] += 1
    return names, (inside, inside_ns, lost, lost_ns, outside)


@pytest.mark.parametrize("name", REFERENCE)
def test_the_tables_give_the_figures_of_a_brute_force(shared: Path, name: str):
    names, figures = brute_force(nsys.read(shared / name))
    assert figures == REFERENCE[name]
    if "fsdp" in name:
        assert {text: names[text] for text in INNERMOST} == INNERMOST


@pytest.mark.parametrize("name", [*REFERENCE, "nsys/multiprocessing_nogpu_2020.sqlite"])
def test_counts_and_times_are_those_of_plain_sql(shared: Path, name: str):
    trace = nsys.read(shared / name)
    db = sqlite3.connect(f"file:{shared / name}?mode=ro&immutable=1", uri=True)
    for table, theirs in (
        ("kernels", "CUPTI_ACTIVITY_KIND_KERNEL"),
        ("calls", "CUPTI_ACTIVITY_KIND_RUNTIME"),
        ("syncs", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"),
    ):
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (theirs,)).fetchone():
            assert not trace.has(table)
            continue
        sql = f"SELECT count(*), sum(end - start), sum(correlationId) FROM {theirs}"
        frame = trace[table]
        lasted = (frame["end"] - frame["start"]).sum()
        assert db.execute(sql).fetchone() == (len(frame), lasted, frame["correlation"].sum())
    sql = "SELECT count(*), sum(end - start) FROM NVTX_EVENTS WHERE eventType = 59"
    ranges = trace["ranges"]
    assert db.execute(sql).fetchone() == (len(ranges), (ranges["end"] - ranges["start"]).sum())
    db.close()


def test_two_processes_are_kept_apart(shared: Path):
    trace = nsys.read(shared / "nsys/fsdp_h100x2_2026.sqlite")
    assert trace["processes"]["pid"].to_list() == [144, 145]
    assert trace["processes"]["name"].to_list() == ["python3", "python3"]
    per_device = trace["kernels"].group_by("process", "device").len().sort("process")
    assert per_device.rows() == [(0, 0, 1993), (1, 1, 2017)]
    assert trace.origin["schema"] == "3.25.0"


def test_kernels_have_names_extents_and_resources(shared: Path):
    kernels = nsys.read(shared / "nsys/fsdp_h100x2_2026.sqlite")["kernels"]
    first = kernels.filter(pl.col("correlation") == 2619582).row(0, named=True)
    assert first["name"].startswith("void at::native::elementwise_kernel")
    assert (first["grid"], first["block"], first["cluster"]) == ("93600,1,1", "128,1,1", None)
    assert (first["registers"], first["stream"], first["context"]) == (18, 15, 2)


def test_domain_names_of_2020_and_a_domain_made_before_the_window(shared: Path):
    old = nsys.read(shared / "nsys/cudf_2020.sqlite")["ranges"]
    assert Counter(old["domain"].cast(pl.String)) == {"cudf_python": 174, "libcudf": 718}
    trace = nsys.read(shared / "nsys/fsdp_h100x2_2026.sqlite")
    assert Counter(trace["ranges"]["domain"].cast(pl.String)) == {"": 18_656, "NCCL": 462}
    assert any("NCCL" in what for what in trace["notes"]["what"])


def test_devices_by_version(shared: Path):
    gpu = nsys.read(shared / "dlprof/nsys_profile.sqlite")["devices"].row(0, named=True)
    assert (gpu["name"], gpu["cc"], gpu["sm_count"]) == ("NVIDIA GeForce RTX 2070 SUPER", "7.5", 40)
    assert (gpu["clock_khz"], gpu["mem_bandwidth"]) == (1_785_000, 448_064_000_000)
    assert gpu["max_threads_per_sm"] == 1024
    gpu = nsys.read(shared / "nsys/cudf_2020.sqlite")["devices"].row(0, named=True)
    assert (gpu["name"], gpu["cc"], gpu["sm_count"]) == ("Quadro RTX 8000", "7.5", 72)


def test_a_gpu_that_the_trace_does_not_name(shared: Path):
    path = shared / "nsys/fsdp_h100x2_2026.sqlite"
    assert nsys.read(path)["devices"]["name"].to_list() == [None, None]
    named = nsys.read(path, gpu="H100 SXM")
    assert named["devices"]["name"].to_list() == ["H100 SXM", "H100 SXM"]
    assert not any("--gpu" in what for what in named["notes"]["what"])


def test_no_environment_is_copied(shared: Path):
    trace = nsys.read(shared / "nsys/fsdp_h100x2_2026.sqlite")
    everything = repr(trace.origin) + repr(trace["processes"].rows()) + repr(trace["notes"].rows())
    assert "MODAL" not in everything
    assert "NV_LIBCUBLAS" not in everything


def test_reading_leaves_nothing_behind(shared: Path, tmp_path: Path):
    copy = tmp_path / "a trace?#.sqlite"
    shutil.copyfile(shared / "nsys/cudf_2020.sqlite", copy)
    before = copy.read_bytes()
    assert nsys.recognise(copy)
    nsys.read(copy)
    assert list(tmp_path.iterdir()) == [copy]
    assert copy.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "says"),
    [("nvprof/language_model.sqlite", "not an Nsight"), ("kineto", "no Parquet or Arrow")],
)
def test_other_formats_are_refused(shared: Path, name: str, says: str):
    assert not nsys.recognise(shared / name)
    with pytest.raises(BadInput, match=says):
        nsys.read(shared / name)
