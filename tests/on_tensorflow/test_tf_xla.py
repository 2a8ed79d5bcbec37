"""Functions that XLA compiles: their programs' operations, with shapes, layers, lines and gradients."""

from __future__ import annotations

import polars as pl
import pytest

tf = pytest.importorskip("tensorflow")


def text(column):
    return pl.col(column).cast(pl.String)


def hlo(profile):
    return profile.ops().filter(text("op").str.starts_with("hlo::")).sort("start")


@pytest.fixture
def train():
    w = tf.Variable(tf.ones((6, 5)))

    @tf.function(jit_compile=True)
    def step(x):
        with tf.GradientTape() as tape:
            with tf.name_scope("net/dense"):
                y = tf.nn.relu(tf.matmul(x, w) + 1.0)
            loss = tf.reduce_sum(tf.sin(y))
        return tape.gradient(loss, w)

    return step


def test_operations_and_fusions_are_seen_in_each_run(recorded, train):
    profile = recorded(lambda: [train(tf.ones((4, 6))) for _ in range(3)])
    ops = hlo(profile)
    dots = ops.filter(text("op") == "hlo::dot")
    assert (
        dots["inputs"].cast(pl.String).to_list() == ["f32[4,6], f32[6,5]", "f32[4,6], f32[4,5]"] * 3
    )
    assert dots["matrix_flops"].to_list() == [2 * 4 * 6 * 5] * 6
    assert dots["direction"].cast(pl.String).to_list() == ["forward", "backward"] * 3
    assert ops.filter(text("op").str.contains("fusion")).height >= 3
    assert ops["inputs"].null_count() == 0
    assert (ops["self_time"] > 0).all()


def test_compiling_is_told_apart_from_running(recorded, train):
    def compiling(profile):
        return profile.ops().filter(text("op") == "XlaCompile")["self_time"].sum()

    x = tf.ones((4, 6))
    first = recorded(lambda: train(x))
    assert compiling(first) > 0
    whole = first.ops().filter(text("op") == "StatefulPartitionedCall")
    assert whole["params"].cast(pl.String).str.contains("__inference_step").all()
    assert whole["inputs"].cast(pl.String).to_list() == ["f32[4,6], f32[6,5]"]
    assert compiling(recorded(lambda: train(x), "again.opscope")) == 0


def test_layers_lines_and_forward_ops_are_those_of_the_nodes(recorded, train):
    ops = recorded(lambda: train(tf.ones((4, 6)))).ops()
    forward, backward = ops.filter(text("op") == "hlo::dot").sort("start").to_dicts()
    assert forward["layer"] == backward["layer"] == "net/dense"
    assert backward["forward_op_id"] == forward["op_id"]
    assert "test_tf_xla.py" in forward["source"]


def test_each_size_is_a_program_of_its_own(recorded, train):
    def program():
        for rows in (4, 9, 4):
            train(tf.ones((rows, 6)))

    dots = hlo(recorded(program)).filter(
        (text("op") == "hlo::dot") & (text("direction") == "forward")
    )
    assert [shape.split(",")[0] for shape in dots["inputs"].cast(pl.String)] == [
        "f32[4",
        "f32[9",
        "f32[4",
    ]


def test_a_compiled_function_within_a_graph_and_compiled_before(recorded, train):
    whole = tf.function(lambda x: tf.reduce_sum(train(x)) + tf.reduce_sum(x))
    whole(tf.ones((4, 6)))
    profile = recorded(lambda: whole(tf.ones((4, 6))))
    dots = hlo(profile).filter(text("op") == "hlo::dot")
    assert dots["matrix_flops"].to_list() == [2 * 4 * 6 * 5] * 2
    assert dots["layer"].cast(pl.String).to_list() == ["net/dense"] * 2
    assert profile.notes()["what"].str.contains("outside any run of their graph").sum() == 0


def test_what_is_not_compiled_is_not_slowed_by_what_is(recorded, train):
    """The profiler's level is as it was when another graph runs."""
    from opscope import adapters

    plain = tf.function(lambda x: tf.nn.relu(x))
    seen = []

    def program():
        native = adapters._installed["tensorflow"]._ranges._native
        train(tf.ones((4, 6)))
        seen.append(native.opscope_operations_on())
        plain(tf.ones(3))
        seen.append(native.opscope_operations_on())

    recorded(program)
    assert seen == [1, 0]


def test_the_programs_own_profiler_is_left_alone(recorded, train, tmp_path):
    def program():
        tf.profiler.experimental.start(str(tmp_path / "logs"))
        train(tf.ones((4, 6)))
        tf.profiler.experimental.stop()
        train(tf.ones((7, 6)))

    profile = recorded(program)
    (plane,) = (tmp_path / "logs").rglob("*.xplane.pb")
    assert b"hlo_op" in plane.read_bytes()
    # both runs were heard; the second told the programs of both
    dots = profile.ops().filter(text("op") == "hlo::dot")
    assert dots["matrix_flops"].to_list() == [2 * 4 * 6 * 5] * 2 + [2 * 7 * 6 * 5] * 2


@pytest.fixture
def net():
    """A function that XLA compiles, and a step that differentiates it by a tape around its call."""
    w, v = tf.Variable(tf.ones((6, 5))), tf.Variable(tf.ones((5, 3)))

    @tf.function(jit_compile=True)
    def loss(x):
        with tf.name_scope("net/dense"):
            y = tf.nn.relu(tf.matmul(x, w) + 1.0)
        with tf.name_scope("net/top"):
            z = tf.matmul(y, v)
        return tf.reduce_sum(tf.sin(z))

    def step(x):
        with tf.GradientTape() as tape:
            result = loss(x)
        return tape.gradient(result, [w, v])

    return step


@pytest.mark.parametrize("whole", [False, True])
def test_a_tape_around_the_call_pairs_the_two_programs(recorded, net, whole):
    step = tf.function(net) if whole else net
    ops = hlo(recorded(lambda: [step(tf.ones((rows, 6))) for rows in (4, 9, 4)])).to_dicts()
    forward = [op for op in ops if op["direction"] == "forward"]
    backward = [op for op in ops if op["direction"] == "backward"]
    assert sum(op["op"] == "hlo::dot" for op in backward) == 4 * 3
    for op in backward:
        (of,) = [one for one in forward if one["op_id"] == op["forward_op_id"]]
        if op["op"] == "hlo::dot":  # it is the latest product of that layer
            before = [one for one in forward if one["start"] < op["start"]]
            assert (
                of
                == [one for one in before if (one["op"], one["layer"]) == (op["op"], op["layer"])][
                    -1
                ]
            )
            assert op["layer"] in ("net/dense", "net/top")
        elif "cosine" in op["params"]:  # the sine's, which is fused into the sum
            assert 'fused=["Sin"' in of["params"]
            assert (of["layer"], op["layer"]) == (None, None)


def test_the_call_of_a_gradient_is_backward(recorded, net):
    net(tf.ones((4, 6)))
    ops = recorded(lambda: net(tf.ones((4, 6)))).ops().sort("start")
    runs = ops.filter(text("op") == "StatefulPartitionedCall")
    assert runs["direction"].cast(pl.String).to_list() == ["forward", "backward"]


def test_nodes_of_one_name_in_two_functions_are_told_apart(recorded):
    """Both have a node ``MatMul``: each operation has the line of its own."""
    a = tf.function(lambda x: tf.matmul(x, x), jit_compile=True)
    b = tf.function(lambda x: tf.matmul(x, x) + 1.0, jit_compile=True)
    both = tf.function(lambda x: a(x) + b(x))
    dots = hlo(recorded(lambda: both(tf.ones((4, 4))))).filter(text("op") == "hlo::dot")
    sources = dots["source"].cast(pl.String).to_list()
    assert len(sources) == len(set(sources)) == 2
    assert all("test_tf_xla.py" in one for one in sources)
