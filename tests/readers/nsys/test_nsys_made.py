"""The benchmark's synthetic file: the truth beside it is what the reader and attribution find."""

from __future__ import annotations

import sqlite3

import polars as pl
import pytest

from opscope import readers
from opscope.core.attribution.attribute import attribute
from opscope.readers.nsys import reader as nsys
from tests.script import module_at


@pytest.fixture(scope="module")
def make_nsys():
    return module_at("benchmarks/make_nsys.py")


@pytest.mark.parametrize("style", ["registered", "torch"])
def test_attribution_finds_the_truth(make_nsys, tmp_path, style):
    path = tmp_path / "made.sqlite"
    done = make_nsys.make(path, 3000, threads=4, style=style, lost=0.02, seed=7)
    trace = nsys.read(path)
    assert (len(trace["kernels"]), len(trace["ranges"])) == (done["kernels"], done["ranges"])
    truth = pl.read_parquet(path.with_suffix(".truth.parquet"))
    found = (
        trace["kernels"]
        .select("process", "correlation", (pl.col("end") - pl.col("start")).alias("duration"))
        .with_columns(pl.Series("range", attribute(trace).kernels.op).cast(pl.Int64))
    )
    found = found.with_columns(pl.when(pl.col("range") >= 0).then("range"))
    order = ["process", "correlation"]
    assert found.sort(order).equals(truth.sort(order))
    assert 0 < truth["range"].null_count() < 200
    if style == "registered":
        ops = trace["ranges"].filter(pl.col("category").cast(pl.String) != "layer")
        assert ops["seq"].null_count() == 0
        assert set(ops["fwd_thread"]) == {1, 2}


def test_the_same_seed_makes_the_same_file(make_nsys, tmp_path):
    for name in ("a", "b"):
        make_nsys.make(tmp_path / f"{name}.sqlite", 300, seed=3)
    one, two = (pl.read_parquet(tmp_path / f"{name}.truth.parquet") for name in "ab")
    assert one.equals(two)


def renamed(path, *changes: tuple[str, str]):
    connection = sqlite3.connect(path)
    for old, new in changes:
        connection.execute(f"alter table {old} rename to {new}")
    connection.commit()
    connection.close()
    return readers.open(path)


NVTX, KERNEL, RUNTIME = "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"


@pytest.mark.parametrize(
    "changes",
    [
        [(NVTX, f"{NVTX}_V2")],
        [(NVTX, f"{NVTX}_V2"), (KERNEL, f"{KERNEL}_V3")],
        [(RUNTIME, f"{RUNTIME}_v10"), ("StringIds", "StringIds_V2")],
        [(KERNEL, f"{KERNEL}_4")],
    ],
)
def test_tables_of_a_newer_version_are_read_as_those_before(make_nsys, tmp_path, changes):
    path = tmp_path / "made.sqlite"
    make_nsys.make(path, 300, seed=3)
    whole = readers.open(path)
    trace = renamed(path, *changes)
    for table in ("kernels", "ranges", "calls"):
        assert trace[table].equals(whole[table])
    told = trace["notes"].filter(severity="info")["what"].to_list()
    assert {f"the table {new} was read as {old}" for old, new in changes} <= set(told)


@pytest.mark.parametrize(
    ("old", "new"),
    [(NVTX, f"{NVTX}_NEXT"), (NVTX, "MARKS"), (KERNEL, "KERNELS"), (RUNTIME, f"{RUNTIME}_X")],
)
def test_a_table_that_is_not_known_and_looks_like_one_that_is_missing_is_named(
    make_nsys, tmp_path, old, new
):
    path = tmp_path / "made.sqlite"
    make_nsys.make(path, 300, seed=3)
    severity, what, _ = renamed(path, (old, new))["notes"].row(0)
    assert severity == "warning"
    assert what.startswith(f"the export has no table {old} that can be read; {new} looks like it")


def test_an_export_of_a_known_version_has_no_such_note(make_nsys, tmp_path):
    path = tmp_path / "made.sqlite"
    make_nsys.make(path, 300, seed=3)
    assert not readers.open(path)["notes"]["what"].str.contains("looks like it|was read as").any()
