"""The reader of DLProf's databases: the same op for each kernel as DLProf's own report."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import polars as pl
import pytest

from opscope.core.attribution.attribute import attribute
from opscope.core.rangetext import parse
from opscope.readers.dlprof import reader as dlprof
from opscope.readers.errors import BadInput


@pytest.fixture(scope="module")
def trace(shared: Path):
    return dlprof.read(shared / "dlprof/dlprof_dldb.sqlite")


def test_each_kernel_has_the_op_of_dlprofs_report(trace, shared: Path):
    with (shared / "dlprof/dlprof_iteration.csv").open() as file:
        next(file)
        rows = {
            (int(row["GPU Start Time (ns)"]), row["Long Kernel Name"]): row["Op ID"]
            for row in csv.DictReader(file)
        }
    result = attribute(trace)
    texts = trace["ranges"]["text"].cast(pl.String)
    kernels = trace["kernels"].select("start", pl.col("name").cast(pl.String)).rows()
    got = {
        kernel: parse(texts[int(op)]).param("op_id")
        for kernel, op in zip(kernels, result.kernels.op, strict=True)
    }
    assert len(rows) == 59
    assert got == rows


def test_shapes_direction_layer_and_source(trace):
    ops = trace["ranges"].filter(pl.col("text").cast(pl.String).str.contains('"CONV2D_2"'))
    row = ops.row(0, named=True)
    call = parse(row["text"])
    assert call.name == "conv2d"
    assert [tensor.shape for tensor in call.input_leaves()] == [
        (32, 6, 15, 15),
        (16, 6, 5, 5),
        (16,),
    ]
    assert {tensor.dtype for tensor in call.input_leaves()} == {"f32"}
    assert [tensor.shape for tensor in call.output_leaves()] == [(32, 16, 11, 11)]
    assert call.frames == (("dummy_network.py", 26), ("dummy_network.py", 42))
    assert row["category"] == "forward"
    layers = trace["ranges"].filter(pl.col("category").cast(pl.String) == "layer")
    assert "dummy_network.Conv2d(2)" in set(layers["text"].cast(pl.String))


def test_copies_devices_and_origin(trace):
    kinds = trace["memops"].group_by(pl.col("kind").cast(pl.String)).len().sort("kind").rows()
    assert kinds == [("HtoD", 13), ("memset", 4)]
    assert trace["devices"]["name"].to_list() == ["NVIDIA GeForce RTX 2070 SUPER"]
    assert trace.origin["version"] == "v1.8.0"
    assert "dlprof --mode" not in json.dumps(trace.origin)


def test_other_databases_are_refused(shared: Path):
    other = shared / "dlprof/nsys_profile.sqlite"
    assert not dlprof.recognise(other)
    assert dlprof.recognise(shared / "dlprof/dlprof_dldb.sqlite")
    with pytest.raises(BadInput, match="not a database of DLProf"):
        dlprof.read(other)
