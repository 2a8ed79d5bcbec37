"""The benchmark's synthetic file: the truth beside it is what the reader and attribution find."""

from __future__ import annotations

import polars as pl
import pytest

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
