"""The NVTX that a tool hears: eager ops, graph ops in TensorFlow's own domain, Keras's steps and layers."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")

from opscope.core.rangetext import parse, parse_spec  # noqa: E402
from opscope.core.schema import CATEGORY_ID  # noqa: E402
from tests.nvtx_tool import build, hear  # noqa: E402

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}


@pytest.fixture(scope="module")
def tool(tmp_path_factory):
    return build(tmp_path_factory.mktemp("tool"))


def test_eager_ops_and_graph_ops_and_their_specs(tool, tmp_path):
    program = """
import opscope, tensorflow as tf
opscope.init()
x = tf.ones((2, 3))
@tf.function
def step(x):
    return tf.nn.relu(tf.matmul(x, x, transpose_b=True))
for _ in range(3):
    step(x)
tf.matmul(x, x, transpose_b=True)
opscope.shutdown()
step(x)
tf.nn.softmax(x)
"""
    heard = hear(program, tool, tmp_path, **QUIET)
    ours = heard.of("push", domain="opscope.tensorflow")
    eager = [one for one in ours if one.category == CATEGORY_ID["forward"]]
    call = parse(next(one.text for one in eager if one.text.startswith("MatMul(")))
    assert [tensor.shape for tensor in call.inputs] == [(2, 3), (2, 3)]
    assert call.param("transpose_b") is True
    assert not any("Softmax" in one.text for one in eager)
    runs = [one.text for one in ours if one.category == CATEGORY_ID["graph"]]
    assert len(runs) == 3
    assert len(set(runs)) == 1
    specs = [
        parse_spec(one.text)
        for one in heard.of("mark", domain="opscope.tensorflow")
        if one.category == CATEGORY_ID["spec"]
    ]
    known = {key: text for graph, key, text in specs if graph == runs[0]}
    assert parse(known["MatMul"]).outputs[0].shape == (2, 2)
    # through the interposed functions, in the domain that GPU builds use, on TensorFlow's threads
    ran = [one.text for one in heard.of("push", domain="TSL")]
    assert sum(text.startswith(("MatMul:", "Relu:")) for text in ran) >= 3
    pushes, pops = (len(heard.of(kind, domain="TSL")) for kind in ("push", "pop"))
    assert pushes == pops


def test_a_tool_that_wants_every_module_hears_graph_ops_too(tmp_path):
    """Nsight Systems attaches to none of a library's modules where it refuses one."""
    program = """
import opscope, tensorflow as tf
opscope.init()
@tf.function
def step(x):
    return tf.nn.relu(tf.matmul(x, x, transpose_b=True))
for _ in range(3):
    step(tf.ones((2, 3)))
"""
    heard = hear(program, build(tmp_path, "-DOPSCOPE_ASK_ALL"), tmp_path, **QUIET)
    ran = [one.text for one in heard.of("push", domain="TSL")]
    assert sum(text.startswith("MatMul:") for text in ran) == 3
    assert len(ran) == len(heard.of("pop", domain="TSL"))


def test_keras_steps_and_layers(tool, tmp_path):
    program = """
import opscope, keras, numpy as np
opscope.init()
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2, name="head")])
model.compile("sgd", "mse", run_eagerly=True)
model.fit(np.ones((8, 4)), np.ones((8, 2)), batch_size=4, verbose=0)
"""
    heard = hear(program, tool, tmp_path, **QUIET)
    steps = heard.of("push", domain="opscope.step")
    assert [(one.text, one.payload) for one in steps] == [("step", 0), ("step", 1)]
    keras = heard.of("push", domain="opscope.keras")
    layers = [one.text for one in keras if one.category == CATEGORY_ID["layer"]]
    assert sum(text.endswith("head") for text in layers) >= 2
    assert "epoch 0" in [one.text for one in keras]
    backward = [
        one
        for one in heard.of("push", domain="opscope.tensorflow")
        if one.category == CATEGORY_ID["backward"]
    ]
    assert backward
    assert any(one.payload is not None for one in backward)


def test_sizes_of_the_run_and_steps_of_a_loop_of_its_own(tool, tmp_path):
    program = """
import opscope, tensorflow as tf
opscope.init()
w = tf.Variable(tf.ones((3, 4)))
@tf.function(input_signature=[tf.TensorSpec((None, 3))])
def train(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.matmul(x, w))
    w.assign_sub(tape.gradient(loss, w))
for rows in (2, 5, 2):
    train(tf.ones((rows, 3)))
"""
    heard = hear(program, tool, tmp_path, **QUIET)
    ran = [one.text for one in heard.of("push", domain="TSL")]
    sizes = [text.partition("#")[2] for text in ran if text.startswith("MatMul:")]
    assert sizes == [f"shape=(float[{rows},3];float[3,4])#" for rows in (2, 5, 2)]
    steps = heard.of("push", domain="opscope.step")
    assert [(one.text, one.payload) for one in steps][:3] == [("step", n) for n in range(3)]


def test_layers_of_a_keras_model_in_a_graph(tool, tmp_path):
    program = """
import opscope, keras, numpy as np
opscope.init()
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2, name="head")])
model.compile("sgd", "mse")
model.fit(np.ones((8, 4)), np.ones((8, 2)), batch_size=4, verbose=0)
"""
    heard = hear(program, tool, tmp_path, **QUIET)
    specs = {
        parse_spec(one.text)[1]: parse(parse_spec(one.text)[2])
        for one in heard.of("mark", domain="opscope.tensorflow")
        if one.category == CATEGORY_ID["spec"]
    }
    ran = [one.text for one in heard.of("push", domain="TSL")]
    products = [
        text.partition(":")[0] for text in ran if "MatMul" in text and "gradient" not in text
    ]
    told = [specs[name] for name in products if name in specs]
    assert len(told) >= 2  # a step each
    assert {call.param("layer") for call in told} == {"sequential/head"}
