"""A real XPlane file of PyTorch/XLA, made by scripts/make_xplane_torch_xla.py with folders renamed."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.core.dialects import hlo
from opscope.core.schema import OpCall

FILE = Path(__file__).with_name("torch_xla.xplane.pb.gz")
#: 2 × batch × outputs × taps of the convolution, and of the two products.
CONV, WIDE, HEAD = 2 * 8 * 26 * 26 * 4 * 9, 2 * 8 * 2704 * 32, 2 * 8 * 32 * 10


@pytest.fixture(scope="module")
def profile():
    return opscope.load(FILE)


@pytest.fixture(scope="module")
def ops(profile):
    return profile.ops().with_columns(pl.col("op", "direction", "layer", "source").cast(pl.String))


def test_every_operation_has_shapes_and_flops(profile, ops):
    assert len(ops) == 78
    assert ops["inputs"].null_count() == ops["outputs"].null_count() == 0
    assert profile.summary()["flops_share"].item() == 1
    assert len(profile.notes()) == 0


def test_products_go_by_what_pytorch_calls_them(ops):
    """The input needs no gradient, so the convolution has that of its weights alone."""
    found = ops.filter(pl.col("matrix_flops") > 0)
    whole = found.filter(pl.col("direction") == "backward")
    assert sorted(whole["matrix_flops"]) == sorted([CONV, WIDE, WIDE, HEAD, HEAD] * 2)
    forward = found.filter(pl.col("direction") == "forward")
    # the recording began in the middle of a step
    assert sorted(forward["matrix_flops"]) == sorted([CONV, WIDE, WIDE, HEAD, HEAD])
    assert set(forward["layer"]) == {"train.1/forward.1"}
    assert forward["source"].str.contains("/home/user/train.py:3[12]").all()
    assert whole["layer"].null_count() == whole["source"].null_count() == len(whole)


def test_optimizer_ops_are_those_of_torch_optim(ops):
    found = ops.filter(pl.col("direction") == "optimizer")
    assert len(found) >= 12
    assert set(found["layer"]) == {"train.1"}
    assert (found["matrix_flops"] == 0).all()


def test_steps_are_the_programs_own(profile):
    ranges = profile.trace["ranges"].filter(pl.col("category").cast(pl.String) == "step")
    assert ranges["text"].cast(pl.String).to_list() == ["step 4"]


@pytest.mark.parametrize(
    ("path", "direction", "layer"),
    [
        ("aten__addmm", None, None),  # neither scopes nor stacks were kept: nothing tells
        ("train.1/net.2/aten__addmm", None, "train.1/net.2"),
        ("train.1/aten__add.3/aten__add", None, "train.1"),
    ],
)
def test_what_a_path_of_pytorch_tells(path, direction, layer):
    reading = hlo.reading(OpCall("hlo::dot", params=(("op_name", path),)))
    assert (reading.direction, reading.layer) == (direction, layer)
