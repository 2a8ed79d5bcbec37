"""The reader of nvprof's databases, on the real one that PyProf was run on."""

from __future__ import annotations

import csv
import sqlite3
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from opscope.core.attribution.attribute import attribute
from opscope.core.dialects.demangle import demangled
from opscope.readers.errors import BadInput
from opscope.readers.nsys import reader as nsys
from opscope.readers.nvprof import reader as nvprof


@pytest.fixture(scope="module")
def path(shared: Path) -> Path:
    return shared / "nvprof/language_model.sqlite"


@pytest.fixture(scope="module")
def trace(path: Path):
    return nvprof.read(path)


def test_counts_and_times_are_those_of_plain_sql(trace, path: Path):
    db = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    for table, theirs in (
        ("kernels", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"),
        ("calls", "CUPTI_ACTIVITY_KIND_RUNTIME"),
    ):
        frame = trace[table]
        want = db.execute(f"SELECT count(*), sum(end - start) FROM {theirs}").fetchone()
        assert want == (len(frame), (frame["end"] - frame["start"]).sum())
    want = db.execute(
        "SELECT count(*), sum(b.timestamp - a.timestamp) FROM CUPTI_ACTIVITY_KIND_MARKER a JOIN "
        "CUPTI_ACTIVITY_KIND_MARKER b ON a.id = b.id WHERE a.flags = 2 AND b.flags = 4"
    ).fetchone()
    ranges = trace["ranges"]
    assert want == (len(ranges), (ranges["end"] - ranges["start"]).sum())
    db.close()


def test_kernels_are_those_of_pyprofs_report(trace, path: Path):
    with (path.parent / "language_model_pyprof.csv").open() as file:
        rows = list(csv.DictReader(file))
    kernels = trace["kernels"].sort("start")
    assert [int(row["Sil(ns)"]) for row in rows] == (kernels["end"] - kernels["start"]).to_list()
    assert [row["Grid"] for row in rows] == kernels["grid"].cast(pl.String).to_list()
    assert [row["Block"] for row in rows] == kernels["block"].cast(pl.String).to_list()
    for row, name in zip(rows, kernels["name"].cast(pl.String), strict=True):
        assert row["Kernel"].split("<")[0] in name


def test_launches_and_markers_meet_on_a_thread(trace):
    result = attribute(trace)
    assert Counter(result.kernels.reason.tolist()) == {0: 284}
    launches = trace["calls"].filter(pl.col("name").cast(pl.String).str.contains("LaunchKernel"))
    assert len(launches) == 284
    assert set(launches["thread"]) < set(trace["ranges"]["thread"])


def test_the_forward_op_is_the_one_that_pyprof_names(trace, path: Path):
    """PyProf's module and op are those of a marker around the launch (it calls an addition bias)."""
    with (path.parent / "language_model_pyprof.csv").open() as file:
        rows = list(csv.DictReader(file))
    result = attribute(trace)
    meaning = result.meaning
    order = trace["kernels"]["start"].arg_sort().to_list()
    checked = 0
    for row, kernel in zip(rows, order, strict=True):
        if row["Direction"] != "fprop":
            continue
        names = set()
        op = int(result.kernels.op[kernel])
        while op >= 0:
            call = meaning.readings[meaning.reading[op]].call
            names.add(call.name)
            op = int(result.parent[op])
        if row["Module"] not in ("-", "na", ""):
            op_name = "linear" if row["Op"] == "bias" else row["Op"]
            assert f"{row['Module']}.{op_name}" in names
            checked += 1
    assert checked > 50


def test_device_and_threads(trace):
    gpu = trace["devices"].row(0, named=True)
    assert (gpu["name"], gpu["cc"], gpu["sm_count"]) == ("Tesla V100-SXM2-16GB", "7.0", 80)
    assert gpu["mem_bandwidth"] == 898_048_000_000
    assert trace["processes"]["pid"].to_list() == [29051]
    assert len(trace["threads"]) == 3


def test_other_databases_are_refused(shared: Path, path: Path):
    other = shared / "nsys/cudf_2020.sqlite"
    assert nvprof.recognise(path)
    assert not nvprof.recognise(other)
    assert not nsys.recognise(path)
    with pytest.raises(BadInput, match="not a database of nvprof"):
        nvprof.read(other)


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZN2at6native3addEv", "at::native::add()"),
        ("volta_sgemm_128x64_nn", "volta_sgemm_128x64_nn"),
        ("_Znonsense", "_Znonsense"),
        (None, None),
    ],
)
def test_symbols(symbol, name):
    assert demangled(symbol) == name
