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
    if m.is_known("compilations"):  # not of ONNX Runtime, whose providers may compile
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

#: A product of (16, 32) and (32, 8): its FLOPs, and bytes in f32; and of a relu of what comes out.
_PRODUCT, _RELU = (2 * 16 * 32 * 8, 4 * (16 * 32 + 32 * 8 + 16 * 8)), (16 * 8, 4 * 2 * 16 * 8)
#: What none of the programs does, in frameworks that tell.
_NONE = dict.fromkeys(("compilations", "recompilations", "collectives", "collective_bytes"), 0)
_BOTH = {"flops": _PRODUCT[0] + _RELU[0], "bytes": _PRODUCT[1] + _RELU[1], "dtypes": "f32"}
#: Framework: a program whose step was counted by hand, and its counts. All others cannot be known on a CPU.
BY_HAND = {
    # the product, a cast to f64, the sum, and its value on the host: 128 values of 4 bytes, then of 8
    "torch": (
        """
import torch
x, w = torch.ones(16, 32), torch.ones(32, 8)

def step():
    y = x @ w
    total = y.double().sum()
    return total.item()
""",
        {
            **_NONE,
            "ops": 4,
            "flops": _PRODUCT[0] + 127,
            "bytes": _PRODUCT[1] + 128 * (4 + 8) + 128 * 8 + 8 + 2 * 8,
            "shapes": 4,
            "dtypes": "f32, f64",
            "reads": 1,
            "peak_memory": 128 * 4 + 128 * 8 + 8,
            "allocations": 3,
            "memory_kept": 0,
        },
    ),
    "jax": (
        """
import jax, jax.numpy as jnp
x, w = jnp.ones((16, 32)), jnp.ones((32, 8))
product = jax.jit(lambda x, w: x @ w)

def step():
    return jax.device_get(product(x, w))
""",
        {
            **_NONE,
            "ops": 1,
            "flops": _PRODUCT[0],
            "bytes": _PRODUCT[1],
            "shapes": 1,
            "dtypes": "f32",
            "reads": 1,
        },
    ),
    "tensorflow": (
        """
import tensorflow as tf
x, w = tf.ones((16, 32)), tf.ones((32, 8))

def step():
    return tf.nn.relu(tf.matmul(x, w)).numpy()
""",
        {**_NONE, **_BOTH, "ops": 2, "shapes": 2, "reads": 1},
    ),
    # Keras on TensorFlow: reading the variable is an op, too, which moves nothing
    "keras": (
        """
import os
os.environ["KERAS_BACKEND"] = "tensorflow"
import keras
x = keras.ops.ones((16, 32))
layer = keras.layers.Dense(8, use_bias=False, activation="relu")

def step():
    return layer(x).numpy()
""",
        {**_NONE, **_BOTH, "ops": 3, "shapes": 3, "reads": 1},
    ),
    "mindspore": (
        """
import numpy as np
import mindspore as ms
from mindspore import ops
x, w = (ms.Tensor(np.ones(shape, np.float32)) for shape in ((16, 32), (32, 8)))

def step():
    return ops.relu(ops.matmul(x, w)).asnumpy()
""",
        {**_NONE, **_BOTH, "ops": 2, "shapes": 2, "reads": 1},
    ),
    # (8, 32) and (32, 16): as many products; the session's run is an op around its two nodes
    "onnxruntime": (
        ONNXRUNTIME.replace("PLANTED", "pass"),
        {
            "ops": 3,
            "flops": 2 * 8 * 32 * 16 + 8 * 16,
            "bytes": 4 * (8 * 32 + 32 * 16 + 8 * 16) + 4 * 2 * 8 * 16,
            "shapes": 3,
            "dtypes": "f32",
            "collectives": 0,
            "collective_bytes": 0,
        },
    ),
}
#: Measures a step; prints its counts, and that each which is not known refuses to be compared.
COUNTS = """
import json
import pytest
import program

def test_counts(opscope):
    getattr(program, "prepare", lambda: None)()
    program.step()
    program.step()
    with opscope.measure() as m:
        program.step()
    known = {}
    for name, row in m.counts.items():
        if m.is_known(name):
            known[name] = row["detail"] if name == "dtypes" else row["value"]
            continue
        for compare in (lambda: getattr(m, name) == 0, lambda: getattr(m, name) <= 10**9):
            with pytest.raises(pytest.fail.Exception, match="cannot be known here: .{10}"):
                compare()
    with open("counts.json", "w") as file:
        json.dump(known, file)
"""
#: A model in PyTorch whose step is made worse in six ways, as ``worse`` says.
WORSE = """
import os
import torch
import torch.distributed as dist
from torch import nn

worse = ""
dist.init_process_group("gloo", init_method=f"file://{os.path.abspath('group')}", rank=0, world_size=1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x):
        h = torch.relu(self.first(x))
        if worse == "op":
            h = torch.clamp(h, max=6.0)
        if worse == "sync":
            float(h[0, 0])
        if worse == "dtype":
            h = h.double().float()
        return self.last(h)


net = Net()
compiled = torch.compile(lambda x: x * 2, backend="eager", dynamic=False)

def step():
    rows = 12 if worse == "shape" else 8
    loss = net(compiled(torch.ones(rows, 16))).sum()
    loss.backward()
    if worse == "collective":
        dist.all_reduce(net.last.bias.grad)
    if worse == "recompile":
        compiled(torch.ones(3, 16))
"""
TEST_WORSE = """
import program
import pytest

@pytest.mark.parametrize("worse", ["", "op", "sync", "dtype", "shape", "collective", "recompile"])
def test_step(opscope, worse):
    program.worse = ""
    program.step()
    program.worse = "" if worse == "recompile" else worse
    program.step()
    program.worse = worse
    with opscope.measure() as m:
        program.step()
    m.check("step")
"""
#: What is said of each.
SAID_OF_WORSE = {
    "op": ["aten::clamp forward Net is new: 1 call (Net, program.py:18)"],
    "sync": ["reads 1, expected 0 (program.py:20 (1))"],
    "dtype": ["dtypes f32, f64, expected f32 (f64: aten::_to_copy, Net, program.py:22)"],
    "shape": [
        "no op is called otherwise; which has other inputs is not stored, most FLOPs has aten::addmm(f32[32], f32[12,16], "
    ],
    "collective": [
        "collectives 1, expected 0 (all_reduce)",
        "c10d::allreduce_ communication is new: 1 call (program.py:34)",
    ],
    "recompile": ["recompilations 1, expected 0 (program.py:27)"],
}
