"""Small ONNX models made in place, and what each of their nodes costs by the formulas of its op."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: What the oldest tested version reads.
OPSET, IR = 17, 8
BATCH, SIZE, CLASSES = 2, 16, 10
TOKENS, WIDTH, HEADS = 8, 32, 4


@dataclass
class Made:
    """A model, what it is run with, and the FLOP of its products (2 per multiply-add) in one run."""

    proto: onnx.ModelProto
    feed: dict[str, np.ndarray]
    flops: int
    name: str = ""
    #: Node's name → its layer.
    layers: dict[str, str] = field(default_factory=dict)

    def save(self, folder: Path) -> Path:
        path = folder / f"{self.name}.onnx"
        onnx.save(self.proto, path)
        return path


class _Graph:
    """Collects nodes and weights."""

    def __init__(self, dtype=np.float32):
        self.nodes, self.weights, self.dtype = [], [], dtype
        self._random = np.random.default_rng(0)

    def weight(self, name, *shape, dtype=None):
        values = (self._random.standard_normal(shape) * 0.1).astype(dtype or self.dtype)
        return self.constant(name, values)

    def constant(self, name, values):
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def __call__(self, op, inputs, output, name=None, **attributes):
        outputs = [output] if isinstance(output, str) else output
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name or "", **attributes))
        return outputs[0]

    def model(self, inputs, outputs, name="graph"):
        graph = helper.make_graph(self.nodes, name, inputs, outputs, self.weights)
        proto = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR
        )
        onnx.checker.check_model(proto)
        return proto


def _value(name, kind, *shape):
    return helper.make_tensor_value_info(name, kind, shape)


def _input(*shape, dtype=np.float32):
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


def cnn() -> Made:
    """Two convolutions with ReLU and pooling, and a dense layer; the batch is a symbol."""
    g = _Graph()
    x = g(
        "Conv",
        ["x", g.weight("w1", 8, 3, 3, 3), g.weight("b1", 8)],
        "c1",
        "/net/conv1/Conv",
        pads=[1] * 4,
    )
    x = g("Relu", [x], "r1", "/net/act1/Relu")
    x = g("MaxPool", [x], "p1", "/net/pool/MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    x = g("Conv", [x, g.weight("w2", 16, 8, 3, 3)], "c2", "/net/conv2/Conv", strides=[2, 2])
    x = g("Relu", [x], "r2", "/net/act2/Relu")
    x = g("GlobalAveragePool", [x], "gap", "/net/gap/GlobalAveragePool")
    x = g("Flatten", [x], "flat", "/net/Flatten")
    g(
        "Gemm",
        [x, g.weight("wf", CLASSES, 16), g.weight("bf", CLASSES)],
        "y",
        "/net/fc/Gemm",
        transB=1,
    )
    proto = g.model(
        [_value("x", TensorProto.FLOAT, "N", 3, SIZE, SIZE)],
        [_value("y", TensorProto.FLOAT, "N", CLASSES)],
        "cnn",
    )
    first = 2 * BATCH * 8 * SIZE * SIZE * 3 * 9
    second = 2 * BATCH * 16 * 3 * 3 * 8 * 9
    dense = 2 * BATCH * CLASSES * 16
    return Made(proto, {"x": _input(BATCH, 3, SIZE, SIZE)}, first + second + dense, "cnn")


def _block(g: _Graph, x: str) -> str:
    def dense(x, name, inner, outer):
        x = g(
            "MatMul",
            [x, g.weight(f"{name}.w", inner, outer)],
            f"{name}.mm",
            f"/block/{name}/MatMul",
        )
        return g("Add", [x, g.weight(f"{name}.b", outer)], f"{name}.y", f"/block/{name}/Add")

    def heads(x, name, order):
        x = g("Reshape", [x, "split"], f"{name}.r", f"/block/attn/{name}/Reshape")
        return g("Transpose", [x], f"{name}.t", f"/block/attn/{name}/Transpose", perm=order)

    def norm(x, name):
        scale, bias = g.weight(f"{name}.s", WIDTH), g.weight(f"{name}.o", WIDTH)
        return g(
            "LayerNormalization", [x, scale, bias], f"{name}.y", f"/block/{name}/LayerNormalization"
        )

    g.constant("split", np.array([0, 0, HEADS, WIDTH // HEADS], np.int64))
    g.constant("merge", np.array([0, 0, WIDTH], np.int64))
    g.constant("scale", np.asarray(np.sqrt(WIDTH // HEADS), g.dtype))
    g.constant("two", np.asarray(np.sqrt(2), g.dtype))
    g.constant("one", np.asarray(1, g.dtype))
    g.constant("half", np.asarray(0.5, g.dtype))
    q = heads(dense(x, "attn/q", WIDTH, WIDTH), "q", [0, 2, 1, 3])
    k = heads(dense(x, "attn/k", WIDTH, WIDTH), "k", [0, 2, 3, 1])
    v = heads(dense(x, "attn/v", WIDTH, WIDTH), "v", [0, 2, 1, 3])
    scores = g("MatMul", [q, k], "qk", "/block/attn/scores/MatMul")
    scores = g("Div", [scores, "scale"], "scaled", "/block/attn/scores/Div")
    weights = g("Softmax", [scores], "weights", "/block/attn/Softmax", axis=-1)
    context = g("MatMul", [weights, v], "context", "/block/attn/context/MatMul")
    context = g(
        "Transpose", [context], "joined", "/block/attn/context/Transpose", perm=[0, 2, 1, 3]
    )
    context = g("Reshape", [context, "merge"], "merged", "/block/attn/context/Reshape")
    x = g("Add", [x, dense(context, "attn/out", WIDTH, WIDTH)], "res1", "/block/Add")
    x = norm(x, "norm1")
    inner = dense(x, "ff/up", WIDTH, 4 * WIDTH)
    erf = g(
        "Erf",
        [g("Div", [inner, "two"], "gelu.d", "/block/ff/act/Div")],
        "gelu.e",
        "/block/ff/act/Erf",
    )
    one = g("Add", [erf, "one"], "gelu.1", "/block/ff/act/Add")
    inner = g(
        "Mul",
        [g("Mul", [inner, one], "gelu.m", "/block/ff/act/Mul"), "half"],
        "gelu",
        "/block/ff/act/Mul_1",
    )
    x = g("Add", [x, dense(inner, "ff/down", 4 * WIDTH, WIDTH)], "res2", "/block/Add_1")
    return norm(x, "norm2")


def _block_flops() -> int:
    rows = BATCH * TOKENS
    attention = 2 * 2 * BATCH * HEADS * TOKENS * TOKENS * (WIDTH // HEADS)
    return 4 * 2 * rows * WIDTH * WIDTH + attention + 2 * 2 * rows * WIDTH * 4 * WIDTH


def transformer() -> Made:
    """One encoder block: attention, layer norms, a GELU made of single ops."""
    g = _Graph()
    g("Identity", [_block(g, "x")], "y", "/Identity")
    shape = ("batch", TOKENS, WIDTH)
    proto = g.model(
        [_value("x", TensorProto.FLOAT, *shape)], [_value("y", TensorProto.FLOAT, *shape)], "block"
    )
    return Made(proto, {"x": _input(BATCH, TOKENS, WIDTH)}, _block_flops(), "transformer")


def float16() -> Made:
    """A dense layer with ReLU and a convolution, in float16 (which the CPU computes in float32)."""
    g = _Graph(np.float16)
    x = g("Conv", ["x", g.weight("w1", 8, 3, 3, 3)], "c1", "/net/conv/Conv", pads=[1] * 4)
    x = g("Relu", [x], "r1", "/net/act/Relu")
    x = g("Flatten", [x], "flat", "/net/Flatten")
    g("MatMul", [x, g.weight("wf", 8 * SIZE * SIZE, CLASSES)], "y", "/net/fc/MatMul")
    proto = g.model(
        [_value("x", TensorProto.FLOAT16, BATCH, 3, SIZE, SIZE)],
        [_value("y", TensorProto.FLOAT16, BATCH, CLASSES)],
        "half",
    )
    flops = 2 * BATCH * 8 * SIZE * SIZE * 27 + 2 * BATCH * CLASSES * 8 * SIZE * SIZE
    return Made(proto, {"x": _input(BATCH, 3, SIZE, SIZE, dtype=np.float16)}, flops, "float16")


def quantised() -> Made:
    """A convolution and a product between QuantizeLinear and DequantizeLinear (QDQ), 8 bits."""
    g = _Graph()

    def scaled(name, x, scale, zero, axis=None):
        g.constant(f"{name}.scale", np.float32(scale))
        g.constant(f"{name}.zero", zero)
        quantised = g(
            "QuantizeLinear",
            [x, f"{name}.scale", f"{name}.zero"],
            f"{name}.q",
            f"/{name}/QuantizeLinear",
        )
        return g(
            "DequantizeLinear",
            [quantised, f"{name}.scale", f"{name}.zero"],
            f"{name}.dq",
            f"/{name}/DequantizeLinear",
        )

    def weight(name, *shape):
        values = np.random.default_rng(2).integers(-100, 100, shape).astype(np.int8)
        g.constant(name, values)
        g.constant(f"{name}.scale", np.float32(0.01))
        g.constant(f"{name}.zero", np.int8(0))
        return g(
            "DequantizeLinear",
            [name, f"{name}.scale", f"{name}.zero"],
            f"{name}.dq",
            f"/{name}/DequantizeLinear",
        )

    x = scaled("in", "x", 0.02, np.uint8(128))
    x = g("Conv", [x, weight("w1", 8, 3, 3, 3)], "c1", "/net/conv/Conv", pads=[1] * 4)
    x = g("Relu", [x], "r1", "/net/act/Relu")
    x = scaled("mid", x, 0.05, np.uint8(0))
    x = g("Flatten", [x], "flat", "/net/Flatten")
    x = scaled("flat2", x, 0.05, np.uint8(0))
    x = g("MatMul", [x, weight("wf", 8 * SIZE * SIZE, CLASSES)], "mm", "/net/fc/MatMul")
    g("Identity", [scaled("out", x, 0.5, np.uint8(128))], "y", "/Identity")
    proto = g.model(
        [_value("x", TensorProto.FLOAT, BATCH, 3, SIZE, SIZE)],
        [_value("y", TensorProto.FLOAT, BATCH, CLASSES)],
        "qdq",
    )
    flops = 2 * BATCH * 8 * SIZE * SIZE * 27 + 2 * BATCH * CLASSES * 8 * SIZE * SIZE
    return Made(proto, {"x": _input(BATCH, 3, SIZE, SIZE)}, flops, "quantised")


TURNS = 5


def loop() -> Made:
    """A Loop of five products, each followed by an If whose branches add or subtract."""
    g = _Graph()
    g.constant("turns", np.int64(TURNS))
    g.constant("true", np.array(True))
    weight = g.weight("w", WIDTH, WIDTH)
    branches = {}
    for name, op in (("then_branch", "Add"), ("else_branch", "Sub")):
        node = helper.make_node(op, ["product", "bias"], [f"{name}.y"], name=f"/cell/{name}/{op}")
        value = _value(f"{name}.y", TensorProto.FLOAT, TOKENS, WIDTH)
        branches[name] = helper.make_graph([node], name, [], [value])
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", weight], ["product"], name="/cell/MatMul"),
            helper.make_node("Less", ["turn", "middle"], ["early"], name="/cell/Less"),
            helper.make_node("If", ["early"], ["state_out"], name="/cell/If", **branches),
            helper.make_node("Identity", ["going"], ["going_out"], name="/cell/Identity"),
        ],
        "body",
        [
            _value("turn", TensorProto.INT64),
            _value("going", TensorProto.BOOL),
            _value("state", TensorProto.FLOAT, TOKENS, WIDTH),
        ],
        [
            _value("going_out", TensorProto.BOOL),
            _value("state_out", TensorProto.FLOAT, TOKENS, WIDTH),
        ],
        [
            numpy_helper.from_array(np.int64(2), "middle"),
            numpy_helper.from_array(np.full(WIDTH, 0.1, np.float32), "bias"),
        ],
    )
    x = g("MatMul", ["x", weight], "first", "/stem/MatMul")
    g("Loop", ["turns", "true", x], "y", "/rnn/Loop", body=body)
    shape = (TOKENS, WIDTH)
    proto = g.model(
        [_value("x", TensorProto.FLOAT, *shape)], [_value("y", TensorProto.FLOAT, *shape)], "loop"
    )
    return Made(proto, {"x": _input(*shape)}, (TURNS + 1) * 2 * TOKENS * WIDTH * WIDTH, "loop")


MODELS = {made.__name__: made for made in (cnn, transformer, quantised, loop, float16)}
