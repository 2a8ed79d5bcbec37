"""The examples run on the CPU, print their reports, and what they count is what the models compute."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

import polars as pl

import opscope

ROOT = Path(__file__).resolve().parents[2]
RUNS = 20


def run(name, target, folder):
    path = ROOT / "examples" / name
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, str(path), target],
        cwd=folder, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, check=True, timeout=300,
    ).stdout  # fmt: skip


def test_the_cnn(tmp_path):
    said = run("onnxruntime_cnn.py", "cnn.opscope", tmp_path)
    assert "Where the time went" in said
    ops = opscope.load(tmp_path / "cnn.opscope").ops()
    batch = 8
    convolutions = 2 * batch * (16 * 28 * 28 * 25 + 32 * 14 * 14 * 25 * 16)
    dense = 2 * batch * (1568 * 120 + 120 * 10)
    assert ops["matrix_flops"].sum() == RUNS * (convolutions + dense)
    assert ops["step"].n_unique() == RUNS
    nodes = ops.filter(pl.col("depth") > 0)
    assert nodes["inputs"].null_count() == 0
    assert {path.name for path in tmp_path.iterdir()} == {"cnn.opscope"}


@pytest.mark.parametrize("bits", [32, 8])
def test_the_transformer(tmp_path, bits):
    said = run("onnxruntime_transformer.py", "block", tmp_path)
    assert said.count("Where the time went") == 2
    ops = opscope.load(tmp_path / f"block-{bits}.opscope").ops()
    rows, width, tokens = 4 * 64, 128, 64
    dense = 2 * rows * width * (4 * width + 2 * 4 * width)
    attention = 2 * 2 * rows * tokens * width
    assert ops["matrix_flops"].sum() == RUNS * (dense + attention)
    nodes = ops.filter(pl.col("depth") > 0)
    layers = set(nodes["layer"].drop_nulls())
    assert {"block/attention/query", "block/feedforward/up", "block/attention/context"} <= layers
    assert nodes["source"].str.contains("onnxruntime_transformer.py:").all()
    dtypes = " ".join(nodes["dtypes"].drop_nulls())
    assert ("i8" in dtypes) == (bits == 8)
