"""The examples trained for real: nearly all time described, layers, backward linked, FLOPs exact."""

from __future__ import annotations

import runpy
from pathlib import Path

import polars as pl
import pytest

tf = pytest.importorskip("tensorflow")

EXAMPLES = Path(__file__).parents[2] / "examples"

NAMES = ["tensorflow_loop.py", "keras_cnn.py"]
#: The longer names first: each has the next in it.
KINDS = ["Conv2DBackpropInput", "Conv2DBackpropFilter", "Conv2D", "MatMul"]


def text(column):
    return pl.col(column).cast(pl.String)


@pytest.mark.parametrize("name", NAMES)
def test_op_time_carries_shapes_and_dtypes(example, name):
    ops = example(name).ops()
    told = ops.filter(
        (pl.col("inputs").is_not_null() | pl.col("outputs").is_not_null())
        & pl.col("dtypes").is_not_null()
    )
    assert told["self_time"].sum() >= 0.99 * ops["self_time"].sum()
    sized = ops.filter(~(text("inputs") + text("outputs").fill_null("")).str.contains(r"\?"))
    assert sized["self_time"].sum() >= 0.99 * ops["self_time"].sum()


def ops_of_graphs(profile):
    """What the graphs of training steps executed forward and backward, but for passing data along.

    The first step is left out: making the variables is part of it.
    """
    ranges = profile.trace["ranges"]
    runs = ranges.filter(text("category") == "graph").sort("start").select("start", "end")
    ops = profile.ops().sort("start")
    ops = ops.join_asof(runs.rename({"end": "run_end"}), on="start", strategy="backward")
    return ops.filter(
        (pl.col("start") < pl.col("run_end"))
        & (pl.col("step") > 0)
        & text("direction").is_in(["forward", "backward"])
        & ~text("op").is_in(["_Arg", "_Retval", "_Send", "_Recv"])
    )


@pytest.mark.parametrize("name", NAMES)
def test_model_ops_have_their_layer(example, name):
    model = ops_of_graphs(example(name))
    assert len(model) > 150
    named = model.filter(pl.col("layer").is_not_null())
    assert named["self_time"].sum() >= 0.95 * model["self_time"].sum()


@pytest.mark.parametrize("name", NAMES)
def test_every_backward_op_has_its_forward_op(example, name):
    profile = example(name)
    backward = ops_of_graphs(profile).filter(text("direction") == "backward")
    assert len(backward) > 100
    assert backward["forward_op_id"].null_count() == 0
    forward = {row["op_id"]: row for row in profile.ops().to_dicts()}
    for row in backward.to_dicts():
        made = forward[row["forward_op_id"]]
        assert made["start"] < row["start"]
        assert made["step"] == row["step"]
        assert made["layer"] == row["layer"]


def test_layers_have_keras_own_names(example):
    layers = set(ops_of_graphs(example("keras_cnn.py"))["layer"].cast(pl.String).drop_nulls())
    names = [
        "conv2d",
        "conv2d_1",
        "max_pooling2d",
        "max_pooling2d_1",
        "dropout",
        "dense",
        "dense_1",
    ]
    loss = "compile_loss/sparse_categorical_crossentropy"
    assert layers == {*(f"sequential/{name}" for name in names), "sequential/flatten", loss}


def test_matrix_flops_are_tensorflows_own(recorded):
    """Type by type: what ``float_operation`` counts in the function's graph, times its runs."""
    net = runpy.run_path(str(EXAMPLES / "tensorflow_loop.py"))["Net"]()
    images, labels = tf.ones((32, 28, 28, 1)), tf.zeros(32, tf.int32)

    @tf.function
    def train(images, labels):
        with tf.GradientTape() as tape:
            tape.watch(images)  # else a node that is counted is not run
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, net(images))
        return tape.gradient(losses, [images, *net.trainable_variables])

    graph = train.get_concrete_function(images, labels).graph
    options = {
        **tf.compat.v1.profiler.ProfileOptionBuilder.float_operation(),
        "output": "none",
    }
    node = tf.compat.v1.profiler.profile(graph, cmd="op", options=options)
    theirs = {}
    while node.children:
        (node,) = node.children
        theirs[node.name] = node.float_ops

    profile = recorded(lambda: [train(images, labels) for _ in range(2)])
    ops = profile.ops().filter(pl.col("matrix_flops") > 0)
    ours = dict.fromkeys(KINDS, 0)
    for op, flops in ops.select(text("op"), "matrix_flops").rows():
        kind = next(kind for kind in KINDS if kind in op)
        ours[kind] += flops
    assert ours == {kind: 2 * theirs[kind] for kind in KINDS}
    assert all(ours.values())


def test_keras_steps_epochs_and_input(example):
    profile = example("keras_cnn.py")
    assert profile.summary()["steps"].item() == 16
    ranges = profile.trace["ranges"]
    phases = ranges.filter(text("category") == "phase")["text"].cast(pl.String)
    assert phases.filter(phases != "compile").to_list() == ["epoch 0", "epoch 1"]
    ops = profile.ops()
    assert ops.filter(text("direction") == "input")["self_time"].sum() > 0
    assert ops.filter(text("direction") == "optimizer")["self_time"].sum() > 0
    in_step = ops.filter(pl.col("step").is_not_null() & (text("op_type") == "conv"))
    assert in_step.group_by("step").len()["len"].unique().to_list() == [5]  # 2 forward, 3 backward


def test_steps_of_a_loop_of_its_own(example):
    profile = example("tensorflow_loop.py")
    assert profile.summary()["steps"].item() == 8
    products = ops_of_graphs(profile).filter(text("op_type") == "conv")
    assert products["step"].n_unique() == 7
    assert products.group_by("step").len()["len"].unique().to_list() == [5]


def test_source_lines_are_the_scripts(example):
    ops = example("tensorflow_loop.py").ops()
    conv = (
        ops.filter(text("op") == "_MklNativeConv2D")
        if "_MklNativeConv2D" in set(ops["op"].cast(pl.String))
        else ops.filter(text("op").str.contains("Conv2D$"))
    )
    lines = (EXAMPLES / "tensorflow_loop.py").read_text().splitlines()
    assert len(conv) > 0
    for source in conv["source"].cast(pl.String).unique():
        file, line = source.split(" < ")[0].rsplit(":", 1)
        assert file.endswith("tensorflow_loop.py")
        assert "conv2d" in lines[int(line) - 1]
