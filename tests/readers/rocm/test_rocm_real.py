"""AMD's profilers' real files: sums by kernel are the tools' own statistics, to the ns; counters join dispatches."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from pathlib import Path

import polars as pl
import pytest

from opscope import readers
from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from opscope.readers import BadInput

RUNS = (
    "rocprofv1_gfx1201_llamacpp",
    "rocprofv1_mi250_laplacian",
    "rocprofv1_mi250_laplacian_kernel1",
    "rocprofv1_mi300_gunrock",
)
FORMATS = ("results.csv", "results.db", "results.json", "results.stats.csv")
DESCRIPTOR = re.compile(r"(?: \[clone \.kd\]|\.kd)\Z")


@pytest.fixture(scope="module")
def rocm(shared: Path) -> Path:
    return shared / "rocm"


def sums(trace: Trace) -> dict[str, tuple[int, int]]:
    """Number and time (ns) of each kernel, by name."""
    kernels = trace["kernels"].with_columns(took=pl.col("end") - pl.col("start"))
    found = kernels.group_by(pl.col("name").cast(pl.String)).agg(pl.len(), pl.col("took").sum())
    return {name: (many, took) for name, many, took in found.iter_rows()}


def stated(path: Path) -> dict[str, tuple[int, int]]:
    """The same from the tool's statistics, by the standard library."""
    with path.open(newline="") as file:
        return {
            DESCRIPTOR.sub("", row["Name"]): (int(row["Calls"]), int(row["TotalDurationNs"]))
            for row in csv.DictReader(file)
        }


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", FORMATS)
def test_sums_by_kernel_are_rocprofs_own_statistics(rocm: Path, run: str, name: str) -> None:
    path = rocm / run / name
    if not path.exists() or path.stat().st_size < 100:
        pytest.skip(f"{run} has no {name}, or an empty one")
    assert sums(readers.open(path)) == stated(rocm / run / "results.stats.csv")


@pytest.mark.parametrize("run", RUNS)
def test_a_folder_counts_a_run_once_in_whatever_formats_it_lies(rocm: Path, run: str) -> None:
    trace = readers.open(rocm / run)
    assert sums(trace) == stated(rocm / run / "results.stats.csv")
    assert not any("own statistics" in what for what in trace["notes"]["what"])


@pytest.mark.parametrize("run", RUNS)
def test_grids_of_rocprof_are_in_work_groups(rocm: Path, run: str) -> None:
    trace = readers.open(rocm / run / "results.csv")
    with (rocm / run / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    grids = trace["kernels"]["grid"].cast(pl.String).to_list()
    assert grids == [f"{-(-int(row['grd']) // int(row['wgr']))},1,1" for row in rows]
    assert trace["processes"]["pid"].to_list() == [int(rows[0]["pid"])]
    attrs = [json.loads(text) for text in trace["kernels"]["attrs"]]
    assert [one["wave_size"] for one in attrs] == [int(row["wave_size"]) for row in rows]


def test_the_empty_json_of_rocprof_is_refused_with_its_reason(rocm: Path) -> None:
    with pytest.raises(BadInput, match="nothing ran"):
        readers.open(rocm / "rocprofv1_mi250_laplacian/results.json")


def test_counters_without_times_are_read_beside_the_run_that_has_them(rocm: Path) -> None:
    trace = readers.open(rocm / "rocprofv1_mi250_laplacian_kernel1/data_movement.csv")
    with (rocm / "rocprofv1_mi250_laplacian_kernel1/data_movement.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = [
        "FETCH_SIZE",
        "WRITE_SIZE",
        "TCP_TOTAL_CACHE_ACCESSES_sum",
        "TCP_TCC_READ_REQ_sum",
        "TCP_TCC_WRITE_REQ_sum",
    ]
    expected = {(int(row["Index"]), name): float(row[name]) for row in rows for name in names}
    counters = trace["counters"].with_columns(pl.col("name").cast(pl.String))
    found = {(c, n): v for c, n, v in counters.select("correlation", "name", "value").iter_rows()}
    assert found == expected


# ------------------------------------------------------------------------------ rocprofv3


def test_rocprofv3s_kernels_are_those_of_plain_csv(rocm: Path) -> None:
    path = rocm / "rocprofv3_gfx1151/decode_kernel_trace.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    kernels = readers.open(path)["kernels"]
    assert len(kernels) == 144
    assert (kernels["end"] - kernels["start"]).sum() == 1_857_381
    assert kernels["stream"].to_list() == [int(row["Stream_Id"]) for row in rows]
    assert kernels["correlation"].to_list() == [int(row["Correlation_Id"]) for row in rows]
    for axes, column, part in (("XYZ", "block", "Workgroup"),):
        expected = [",".join(row[f"{part}_Size_{axis}"] for axis in axes) for row in rows]
        assert kernels[column].cast(pl.String).to_list() == expected
    grids = [
        ",".join(
            str(-(-int(row[f"Grid_Size_{a}"]) // int(row[f"Workgroup_Size_{a}"]))) for a in "XYZ"
        )
        for row in rows
    ]
    assert kernels["grid"].cast(pl.String).to_list() == grids


def test_what_another_viewer_found_in_the_same_kernels_is_found_here(rocm: Path) -> None:
    """``busy_ns`` of two tokens that rocprof-unified-viewer chose, from its own kernels' times."""
    golden = json.loads((rocm / "rocprofv3_gfx1151/golden_decode_payload.json").read_text())
    kernels = readers.open(rocm / "rocprofv3_gfx1151/decode_kernel_trace.csv")["kernels"].sort(
        "start"
    )
    start, end = kernels["start"].to_numpy(), kernels["end"].to_numpy()
    span = golden["span_ns"]
    windows = [
        (
            int(
                (
                    end[(start >= low) & (end <= low + span)]
                    - start[(start >= low) & (end <= low + span)]
                ).sum()
            )
        )
        for low in start
        if (end <= low + span)[start >= low].any() and low + span in end
    ]
    assert golden["busy_ns"] in windows


def test_launches_in_a_sampled_trace_join_their_calls(rocm: Path) -> None:
    trace = readers.open(rocm / "rocprofv3_gfx1151")
    with (rocm / "rocprofv3_gfx1151/decode_hip_api_trace.csv").open(newline="") as file:
        calls = {int(row["Correlation_Id"]) for row in csv.DictReader(file)}
    kernels = Profile(trace).kernels()
    main = kernels.filter(pl.col("start") < 342_340_000_000_000)
    joined = main.filter(pl.col("call_start").is_not_null())
    assert set(joined["correlation"]) == calls & set(main["correlation"])
    assert len(joined)


@pytest.mark.parametrize("name", ["stall", "fetch"])
def test_counters_of_rocprofv3_are_joined_to_their_dispatches(rocm: Path, name: str) -> None:
    path = rocm / f"rocprofv3_gfx1151/decode_{name}_counter_collection.csv"
    trace = readers.open(path)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    joined = trace["counters"].join(
        trace["kernels"], on=["process", "correlation"], suffix="_kernel"
    )
    assert len(joined) == len(rows)
    found = {
        (row["start"], str(row["name"])): (row["value"], str(row["name_kernel"]))
        for row in joined.iter_rows(named=True)
    }
    for row in rows:
        value, kernel = found[int(row["Start_Timestamp"]), row["Counter_Name"]]
        assert value == float(row["Counter_Value"])
        assert kernel == row["Kernel_Name"]


def test_small_tables_of_the_manual_are_read_as_they_are(rocm: Path) -> None:
    docs = rocm / "rocprofv3_docs"
    assert (readers.open(docs / "kernel_trace.csv")["kernels"]["grid"] == "16,1024,1").all()
    copies = readers.open(docs / "memory_copy_trace.csv")["memops"]
    assert copies.select(pl.col("kind").cast(pl.String), "device").rows() == [
        ("HtoD", 1),
        ("DtoH", 1),
    ]
    ranges = readers.open(docs / "marker_api_trace.csv")["ranges"]
    kinds = ranges.select(pl.col("text", "kind").cast(pl.String)).rows()
    assert kinds == [
        ("before hipLaunchKernel", "mark"),
        ("hipLaunchKernel range", "startend"),  # roctxRangeStart: on thread 0
        ("hipLaunchKernel", "pushpop"),
        ("after hipLaunchKernel", "mark"),
        ("hipMemcpy", "pushpop"),
    ]
    with pytest.raises(BadInput, match="totals of calls"):
        readers.open(docs / "hip_api_stats.csv")


# ------------------------------------------------------------------------------ rocmProfileData


def test_rpd_has_the_sums_of_its_own_views(rocm: Path) -> None:
    path = rocm / "rpd/matmul_result.rpd"
    trace = readers.open(path)
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as db:
        rows = db.execute(
            "SELECT opType, description, count(*), sum(end - start) FROM op GROUP BY 1, 2"
        ).fetchall()
        busy = db.execute("SELECT GpuTime FROM busy").fetchone()[0]
        launched = db.execute(
            "SELECT O.id, A.apiName FROM rocpd_api_ops L JOIN rocpd_op O ON O.id = L.op_id JOIN api A ON A.id = L.api_id"
        ).fetchall()
    db.close()
    kernels = {
        description: (n, ns) for kind, description, n, ns in rows if kind == "KernelExecution"
    }
    assert sums(trace) == kernels
    copies = trace["memops"].with_columns(took=pl.col("end") - pl.col("start"))
    assert int(copies["took"].sum()) + sum(ns for _, ns in kernels.values()) == busy == 183_918_056
    assert len(trace["kernels"]) + len(copies) == 85
    found = Profile(trace).kernels()["call_start"]
    assert found.null_count() == 0
    assert len(launched) == 85


def test_rpds_matrix_product_has_as_many_work_groups_as_its_tiles(rocm: Path) -> None:
    # 800 x 50000 in tiles of 128 x 64 (MT128x64), launched with a grid in work-items
    kernels = readers.open(rocm / "rpd/matmul_result.rpd")["kernels"].with_columns(
        pl.col("name").cast(pl.String)
    )
    product = kernels.filter(pl.col("name").str.starts_with("Cijk"))
    assert product["grid"].cast(pl.String).to_list() == ["7,782,1"]


def test_the_chrome_trace_made_of_an_rpd_has_the_same_kernels_and_launches(rocm: Path) -> None:
    whole, cut = (readers.open(rocm / f"rpd/matmul_result.{end}") for end in ("rpd", "json"))
    name = pl.col("name").cast(pl.String)
    columns = (name, pl.col("start") // 1000, "device", "stream")
    ours, theirs = (
        trace["kernels"].select(columns).sort("start", "name").rows() for trace in (cut, whole)
    )
    assert ours == theirs
    calls = [Profile(trace).kernels().sort("start")["call_start"] // 1000 for trace in (whole, cut)]
    assert calls[0].to_list() == calls[1].to_list()
    assert len(cut["memops"]) == len(whole["memops"])
    assert any("whole µs" in what for what in cut["notes"]["what"])


def test_a_chrome_trace_of_rpd_whose_events_are_there_twice_has_each_once(
    rocm: Path, tmp_path: Path
) -> None:
    path = rocm / "rpd/matmul_result.json"
    first, *events, last = path.read_text().splitlines()
    once = readers.open(path)
    for name, doubled in {"after": events * 2, "beside": [e for e in events for _ in "12"]}.items():
        twice = tmp_path / f"{name}.json"
        twice.write_text("\n".join([first, *doubled, last]))
        trace = readers.open(twice)
        for table in ("kernels", "memops", "calls", "ranges"):
            assert len(trace[table]) == len(once[table]), (name, table)
        assert "events that the file holds twice: counted once" in trace["notes"]["what"].to_list()


def test_rpds_copies_have_the_bytes_of_their_calls(rocm: Path) -> None:
    copies = readers.open(rocm / "rpd/matmul_result.rpd")["memops"].sort("start")
    first = copies.head(2).select(pl.col("kind").cast(pl.String), "bytes").rows()
    assert first == [("HtoD", 2_000_000_000), ("HtoD", 32_000_000)]


# ------------------------------------------------------------------------------ rocprofiler-compute


def test_rocprofiler_computes_counters_are_joined_to_its_dispatches(rocm: Path) -> None:
    folder = rocm / "rocprofiler-compute_vcopy_MI200"
    trace = readers.open(folder)
    kernels = trace["kernels"].sort("start")
    assert (kernels["end"] - kernels["start"]).sum() == 52_320
    with (folder / "pmc_perf.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    counters = trace["counters"].with_columns(pl.col("name").cast(pl.String))
    found = {(c, n): v for c, n, v in counters.select("correlation", "name", "value").iter_rows()}
    for row in rows:
        for name in ("SQ_WAVES", "TCC_EA_WRREQ[0]", "SQ_INSTS_VALU"):
            assert found[int(row["Dispatch_ID"]), name] == float(row[name])
    assert len(found) == len(counters)
    with (folder / "SQ_LEVEL_WAVES.csv").open(newline="") as file:
        levels = [float(row["SQ_ACCUM_PREV_HIRES"]) for row in csv.DictReader(file)]
    assert [found[n, "SQ_ACCUM_PREV_HIRES"] for n in range(3)] == levels
    device = trace["devices"].row(0, named=True)
    assert (device["cc"], device["sm_count"], device["clock_khz"]) == ("gfx90a", 104, 1_700_000)


@pytest.mark.parametrize("name", ["pmc_dispatch_info.csv", "roofline.csv", "sysinfo.csv"])
def test_tables_of_a_workload_without_kernels_are_refused_in_one_line(
    rocm: Path, name: str
) -> None:
    with pytest.raises(BadInput) as found:
        readers.open(rocm / "rocprofiler-compute_vcopy_MI200" / name)
    assert len(found.value.what.splitlines()) == 1
