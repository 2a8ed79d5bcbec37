"""The main job on the CPU: LeNet trained for real, recorded, correlated, counted."""

from __future__ import annotations

import runpy
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.profile import Profile

torch = pytest.importorskip("torch")

LENET = Path(__file__).parents[2] / "examples" / "torch_lenet.py"


@pytest.fixture(scope="module")
def profile(tmp_path_factory) -> Profile:
    path = tmp_path_factory.mktemp("lenet") / "lenet.opscope"
    opscope.init()
    try:
        with opscope.capture(path):
            runpy.run_path(str(LENET), run_name="__main__")
    finally:
        opscope.shutdown()
    return opscope.load(path)


def test_nearly_all_op_time_carries_shapes_and_dtypes(profile):
    ops = profile.ops()
    described = ops.filter(
        (pl.col("inputs").is_not_null() | pl.col("outputs").is_not_null())
        & (pl.col("dtypes").is_not_null())
    )
    assert described["self_time"].sum() >= 0.99 * ops["self_time"].sum()


def test_matrix_flops_are_those_of_torchs_own_counter(profile):
    """To the last digit, forward and backward: the same script under FlopCounterMode."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        runpy.run_path(str(LENET), run_name="__main__")
    theirs = {str(op): flops for op, flops in counter.get_flop_counts()["Global"].items()}
    ours = profile.ops().group_by("op").agg(pl.col("matrix_flops").sum()).rows()
    assert {f"aten.{name.removeprefix('aten::')}": flops for name, flops in ours if flops} == theirs
    assert {"aten.convolution", "aten.convolution_backward", "aten.addmm", "aten.mm"} == set(theirs)


def test_every_parameters_op_is_linked_forward_to_backward(profile):
    ops = profile.ops()
    name = {row["op_id"]: row for row in ops.to_dicts()}
    backward = ops.filter(pl.col("direction").cast(pl.String) == "backward")
    weights = backward.filter(
        pl.col("op").cast(pl.String).is_in(["aten::convolution_backward", "aten::mm"])
    )
    assert len(weights) > 0
    assert weights["forward_op_id"].null_count() == 0
    pairs = {(row["op"], name[row["forward_op_id"]]["op"]) for row in weights.to_dicts()}
    assert pairs == {
        ("aten::convolution_backward", "aten::convolution"),
        ("aten::mm", "aten::addmm"),
    }
    for row in weights.to_dicts():
        forward = name[row["forward_op_id"]]
        assert row["layer"] == forward["layer"]
        assert row["layer"] is not None
        assert forward["start"] < row["start"]
    trained = ops.filter(
        (pl.col("op").cast(pl.String).is_in(["aten::convolution", "aten::addmm"]))
        & (pl.col("step").is_not_null())
    )
    assert set(weights["forward_op_id"]) == set(trained["op_id"])


def test_summary_adds_up_and_flops_are_known(profile):
    row = profile.summary().row(0, named=True)
    assert row["attributed_time"] + row["unattributed_time"] == row["kernel_time"]
    assert row["steps"] == 8
    assert row["kernels"] is None
    assert row["tensor_core_time"] is None
    assert row["flops_share"] >= 0.99
    steps = profile.trace["ranges"].filter(pl.col("category") == "step")
    assert row["unattributed_time"] <= (steps["end"] - steps["start"]).sum()


def test_source_lines_are_the_scripts(profile):
    convs = profile.ops().filter(pl.col("op").cast(pl.String) == "aten::convolution")
    lines = LENET.read_text().splitlines()
    for source in convs["source"].cast(pl.String).unique():
        file, line = source.split(" < ")[0].rsplit(":", 1)
        assert file.endswith("torch_lenet.py")
        assert "conv" in lines[int(line) - 1]
