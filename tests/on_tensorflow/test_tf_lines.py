"""Where ops of a graph belong: the layer and the line of fused kernels, and of what differentiates others."""

from __future__ import annotations

import inspect

import polars as pl
import pytest

tf = pytest.importorskip("tensorflow")


@pytest.fixture
def variables():
    shapes = {"w": (3, 3, 3, 8), "b": (8,), "v": (1568, 10), "c": (10,)}
    return {name: tf.Variable(tf.ones(shape)) for name, shape in shapes.items()}


def net(x, w, b, v, c):
    with tf.name_scope("conv"):
        h = tf.nn.bias_add(tf.nn.conv2d(x, w, 1, "VALID"), b)  # conv
    with tf.name_scope("act"):
        h = tf.nn.relu(h)  # act
    h = tf.reshape(h, (-1, 1568))
    with tf.name_scope("fc"):
        h = tf.nn.bias_add(tf.matmul(h, v), c)  # fc
    with tf.name_scope("out"):
        return tf.nn.relu(h)  # out


def line(mark):
    """The number of the line of ``net`` that ends in ``# mark``."""
    lines, first = inspect.getsourcelines(net)
    return first + next(n for n, text in enumerate(lines) if text.rstrip().endswith(f"# {mark}"))


def placed(profile, pattern, direction):
    """The distinct (layer, line) of ops whose name has ``pattern``; their innermost lines are ``net``'s."""
    ops = profile.ops().filter(
        pl.col("op").str.contains(pattern) & (pl.col("direction") == direction)
    )
    found = ops.select("layer", pl.col("source").str.extract(r"^[^ ]*:([0-9]+)").cast(pl.Int64))
    return set(found.rows())


def trained(variables, *, jit=False):
    @tf.function(jit_compile=jit)
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(net(x, **variables) ** 2)
        return tape.gradient(loss, list(variables.values()))

    return lambda: step(tf.ones((4, 16, 16, 3)))


def test_a_fused_kernel_is_of_the_layer_and_the_line_it_begins_with(recorded, variables):
    profile = recorded(trained(variables))
    assert placed(profile, "FusedConv2D$", "forward") == {("conv", line("conv"))}
    assert placed(profile, "FusedMatMul$", "forward") == {("fc", line("fc"))}


def test_a_backward_op_is_of_the_layer_and_the_line_of_its_forward_op(recorded, variables):
    """Also where that ran within a fused kernel which is of another layer."""
    profile = recorded(trained(variables))
    assert placed(profile, "^ReluGrad$", "backward") == {
        ("act", line("act")), ("out", line("out")),
    }  # fmt: skip
    assert placed(profile, "MatMul", "backward") == {("fc", line("fc"))}
    assert placed(profile, "Conv2DBackpropFilter", "backward") == {("conv", line("conv"))}


def test_the_gradient_of_a_function_is_on_the_lines_of_that(recorded, variables):
    whole = tf.function(lambda x: net(x, **variables))

    def program():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(whole(tf.ones((4, 16, 16, 3))))
        tape.gradient(loss, list(variables.values()))

    profile = recorded(program)
    assert placed(profile, "^ReluGrad$", "backward") == {
        ("act", line("act")), ("out", line("out")),
    }  # fmt: skip
    assert placed(profile, "MatMul", "backward") == {("fc", line("fc"))}


def test_what_xla_made_of_backward_nodes_is_on_the_forward_nodes_lines(recorded, variables):
    profile = recorded(trained(variables, jit=True))
    products = placed(profile, "^hlo::(dot|convolution|fusion:dot|fusion:convolution)", "backward")
    assert ("fc", line("fc")) in products
    assert products <= {("fc", line("fc")), ("conv", line("conv"))}


def test_a_program_that_fuses_a_product_is_of_the_products_node():
    """The region bears the name of its root, an activation's; its path is the product's."""
    from opscope.adapters.tensorflow.programs import _traced
    from opscope.core.schema import OpCall

    nodes = {
        "fc/MatMul": OpCall("MatMul", params=(("layer", "model/fc"),), frames=(("a.py", 1),)),
        "act/Relu": OpCall("Relu", params=(("layer", "model/act"),), frames=(("a.py", 2),)),
    }
    call = OpCall(
        "hlo::fusion:dot", params=(("op_name", "fc/MatMul"), ("op_name_of", "dot.3")),
        frames=(("a.py", 1),),
    )  # fmt: skip
    told = _traced(call, "step", nodes, ("act/Relu", "fc/MatMul"))
    assert told.param("layer") == "model/fc"
    assert told.param("op_name") == "fc/MatMul"
    assert told.param("fused") == ("act/Relu",)
    assert told.frames == (("a.py", 1),)
