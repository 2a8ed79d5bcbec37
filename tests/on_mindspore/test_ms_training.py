"""Real models trained in PyNative mode: shapes, dtypes, layers, directions, FLOPs."""

from __future__ import annotations

import polars as pl
import pytest

pytest.importorskip("mindspore")

from tests.on_mindspore.models import LeNet, ResNet, Transformer, trained

MODELS = [LeNet, ResNet, Transformer]
STEPS = 3


def text(column):
    return pl.col(column).cast(pl.String)


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    """``profiles(model)``: the profile of its training, run once."""
    import opscope

    made = {}

    def profile(kind):
        if kind not in made:
            path = tmp_path_factory.mktemp("trained") / "run.opscope"
            with opscope.capture(path, backend="recorder"):
                trained(kind, STEPS)
            opscope.shutdown()
            made[kind] = opscope.load(path)
        return made[kind]

    return profile


@pytest.mark.parametrize("kind", MODELS)
def test_op_time_carries_shapes_and_dtypes(profiles, kind):
    ops = profiles(kind).ops()
    told = ops.filter(
        (pl.col("inputs").is_not_null() | pl.col("outputs").is_not_null())
        & pl.col("dtypes").is_not_null()
    )
    assert told["self_time"].sum() >= 0.98 * ops["self_time"].sum()
    sizes = text("inputs").fill_null("") + text("outputs").fill_null("")
    assert not ops.filter(sizes.str.contains(r"\?")).height


@pytest.mark.parametrize("kind", MODELS)
def test_forward_ops_have_their_layer_and_line(profiles, kind):
    ops = profiles(kind).ops().filter(text("direction") == "forward")
    bare = ops.filter(pl.col("layer").is_null())
    assert bare["op"].to_list() == ["Reshape"] * 3  # the program's own function, outside all cells
    assert ops["source"].null_count() == 0
    assert ops.filter(text("source").str.contains("models.py")).height == ops.height


@pytest.mark.parametrize("kind", MODELS)
def test_backward_ops_know_their_forward_op(profiles, kind):
    """But for the gradient that a backward pass begins with, and sums of gradients."""
    ops = profiles(kind).ops()
    backward = ops.filter(text("direction") == "backward")
    of_ops = backward.filter(~text("op").is_in(["Ones", "OnesLike", "Add", "AddN", "ZerosLike"]))
    assert len(of_ops) > 20
    unlinked = of_ops.filter(pl.col("forward_op_id").is_null())
    assert not unlinked.height, unlinked["op"].to_list()
    forward = ops.select(
        pl.col("op_id").alias("forward_op_id"),
        pl.col("layer").alias("forward_layer"),
        pl.col("direction").alias("forward_direction"),
        pl.col("end").alias("forward_end"),
        pl.col("step").alias("forward_step"),
    )
    pairs = of_ops.join(forward, on="forward_op_id")
    assert set(pairs["forward_direction"]) == {"forward"}
    assert (pairs["forward_end"] <= pairs["start"]).all()
    assert (pairs["forward_step"] == pairs["step"]).all()
    assert (pairs["layer"] == pairs["forward_layer"]).all()


@pytest.mark.parametrize("kind", MODELS)
def test_steps_are_those_of_the_optimizer(profiles, kind):
    assert profiles(kind).summary()["steps"].item() == STEPS


#: Multiply-adds of a step: (layer, forward, gradients of weight and data). The first layer's data has none.
def _conv(images, out, channels, kernel, first=False):
    once = 2 * images * out[0] * out[1] * out[2] * channels * kernel * kernel
    return once, once * (1 if first else 2)


def _dense(rows, inputs, outputs):
    return 2 * rows * inputs * outputs, 4 * rows * inputs * outputs


LAYERS = {
    LeNet: {
        "LeNet.conv1": _conv(4, (6, 24, 24), 1, 5, first=True),
        "LeNet.conv2": _conv(4, (16, 8, 8), 6, 5),
        "LeNet.fc1": _dense(4, 256, 120),
        "LeNet.fc2": _dense(4, 120, 84),
        "LeNet.fc3": _dense(4, 84, 10),
    },
    ResNet: {
        "ResNet.stem": _conv(4, (8, 8, 8), 3, 3, first=True),
        "ResNet.blocks.0.conv": _conv(4, (8, 8, 8), 8, 3),
        "ResNet.blocks.1.conv": _conv(4, (8, 8, 8), 8, 3),
        "ResNet.head": _dense(4, 128, 10),
    },
    Transformer: {
        **{
            f"Transformer.blocks.{block}.attention.{name}": _dense(18, 16, 16)
            for block in range(2)
            for name in ("query", "key", "value", "out")
        },
        # weights and mixing: 3 images, 2 heads, 6 × 6 positions, 8 channels
        **{
            f"Transformer.blocks.{block}.attention": (2 * 2 * 6 * 36 * 8, 4 * 2 * 6 * 36 * 8)
            for block in range(2)
        },
        **{f"Transformer.blocks.{block}.up": _dense(18, 16, 64) for block in range(2)},
        **{f"Transformer.blocks.{block}.down": _dense(18, 64, 16) for block in range(2)},
        "Transformer.head": _dense(18, 16, 17),
    },
}


@pytest.mark.parametrize("kind", MODELS)
def test_flops_of_convolutions_and_products_are_those_of_brute_force(profiles, kind):
    ops = profiles(kind).ops().filter(pl.col("canonical"))
    assert ops["flops"].null_count() == 0
    found = {
        (layer, direction): flops // STEPS
        for layer, direction, flops in ops.filter(pl.col("matrix_flops") > 0)
        .group_by(text("layer"), text("direction"))
        .agg(pl.col("matrix_flops").sum())
        .iter_rows()
    }
    expected = {}
    for layer, (forward, backward) in LAYERS[kind].items():
        expected[layer, "forward"] = forward
        expected[layer, "backward"] = backward
    assert found == expected


def test_phases_are_those_of_a_step(profiles):
    ranges = profiles(LeNet).trace["ranges"].with_columns(text("category"), text("text"))
    phases = ranges.filter(pl.col("category") == "phase").sort("start")["text"].to_list()
    assert [one for one in phases if one != "compile"] == [
        "forward",
        "backward",
        "optimizer",
    ] * STEPS
