"""Small programs of each framework for the pytest plug-in: a step, and the same step with a planted slowdown."""

TESTS = """
import pytest
import program

def test_step(opscope):
    program.prepare()
    program.step()
    with opscope.measure() as m:
        program.step()
    m.check("step")

def test_counts(opscope):
    program.step()
    with opscope.measure() as m:
        program.step()
    assert m.ops > 0
    assert m.compilations == 0
    assert m.dtypes
    assert m.shapes > 0
"""
TORCH = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
x = torch.randn(16, 32)

def prepare():
    pass

def step():
    loss = model(x).sum()
    loss.backward()
    PLANTED
"""
JAX = """
import jax, jax.numpy as jnp
w, x = jnp.ones((32, 16)), jnp.ones((8, 32))
loss = jax.jit(jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w))))

def prepare():
    pass

def step():
    gradient = loss(w)
    jax.block_until_ready(gradient)
    PLANTED
"""
TENSORFLOW = """
import tensorflow as tf
w, x = tf.Variable(tf.ones((32, 16))), tf.ones((8, 32))

@tf.function
def train():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.tanh(x @ w))
    w.assign_sub(0.1 * tape.gradient(loss, w))
    return loss

def prepare():
    pass

def step():
    loss = train()
    PLANTED
"""
MINDSPORE = """
import numpy as np
import mindspore as ms
from mindspore import nn
net = nn.SequentialCell(nn.Dense(32, 16), nn.ReLU(), nn.Dense(16, 4))
x = ms.Tensor(np.ones((8, 32), np.float32))

def prepare():
    pass

def step():
    loss = net(x).sum()
    PLANTED
"""
ONNXRUNTIME = """
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
session = None

def prepare():
    # a session is seen from its creation on
    global session
    kind = TensorProto.FLOAT
    weight = helper.make_tensor("W", kind, (32, 16), np.ones(512, np.float32))
    nodes = [helper.make_node("MatMul", ["x", "W"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    x = helper.make_tensor_value_info("x", kind, (8, 32))
    y = helper.make_tensor_value_info("y", kind, (8, 16))
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

def step():
    session.run(None, {"x": np.ones((8, 32), np.float32)})
    PLANTED
"""
#: Framework: the program, the slowdown that is planted, and what is said of it.
PROGRAMS = {
    "torch": (
        TORCH,
        "loss.item()",
        [
            "reads 1, expected 0 (program.py:11 (1))",
            "aten::_local_scalar_dense is new: 1 call (program.py:11)",
        ],
    ),
    # what waits for a value (block_until_ready) is a read too
    "jax": (
        JAX,
        "float(gradient[0, 0])",
        ["reads 2, expected 1 (program.py:10 (1), program.py:11 (1))"],
    ),
    "tensorflow": (TENSORFLOW, "float(loss)", ["reads 1, expected 0 (program.py:16 (1))"]),
    "mindspore": (MINDSPORE, "float(loss)", ["reads 1, expected 0 (program.py:12 (1))"]),
    "onnxruntime": (
        ONNXRUNTIME,
        "session.run(None, {'x': np.ones((8, 32), np.float32)})",
        ["MatMul forward is called 2 times, before 1"],
    ),
}
