"""Runs a small transformer block made here in ONNX Runtime, plain and in 8 bits, and prints the reports."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import opscope

BATCH, TOKENS, WIDTH, HEADS = 4, 64, 128, 4


class Block:
    """An encoder block: attention, a feed-forward part, and a layer norm after each."""

    def __init__(self, bits):
        self.bits, self.nodes, self.weights = bits, [], []
        self.random = np.random.default_rng(0)

    def constant(self, name, values):
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(self, op, layer, inputs, output, **attributes):
        name = f"/block/{layer}/{op}"
        self.nodes.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        return output

    def quantised(self, layer, x, weight, values):
        """Both operands in 8 bits and back: ONNX Runtime makes integer products of such pairs."""
        scale = float(np.abs(values).max()) / 127
        self.constant(f"{weight}.q", np.rint(values / scale).astype(np.int8))
        self.constant(f"{weight}.s", np.float32(scale))
        self.constant(f"{weight}.z", np.int8(0))
        self.constant(f"{layer}.s", np.float32(0.05))
        self.constant(f"{layer}.z", np.uint8(128))
        given = [f"{layer}.s", f"{layer}.z"]
        held = [f"{weight}.q", f"{weight}.s", f"{weight}.z"]
        x = self.node("QuantizeLinear", layer, [x, *given], f"{layer}.x8")
        x = self.node("DequantizeLinear", layer, [x, *given], f"{layer}.x")
        return x, self.node("DequantizeLinear", f"{layer}/weight", held, f"{layer}.w")

    def dense(self, layer, x, inner, outer):
        values = (self.random.standard_normal((inner, outer)) / inner**0.5).astype(np.float32)
        weight = f"{layer}.weight"
        if self.bits == 8:
            x, weight = self.quantised(layer, x, weight, values)
        else:
            self.constant(weight, values)
        x = self.node("MatMul", layer, [x, weight], f"{layer}.product")
        bias = self.constant(f"{layer}.bias", np.zeros(outer, np.float32))
        return self.node("Add", layer, [x, bias], f"{layer}.y")

    def heads(self, layer, x, order):
        x = self.node("Reshape", layer, [x, "split"], f"{layer}.split")
        return self.node("Transpose", layer, [x], f"{layer}.heads", perm=order)

    def norm(self, layer, x):
        scale = self.constant(f"{layer}.scale", np.ones(WIDTH, np.float32))
        shift = self.constant(f"{layer}.shift", np.zeros(WIDTH, np.float32))
        return self.node("LayerNormalization", layer, [x, scale, shift], f"{layer}.y")

    def model(self):
        self.constant("split", np.array([0, 0, HEADS, WIDTH // HEADS]))
        self.constant("join", np.array([0, 0, WIDTH]))
        self.constant("root", np.float32((WIDTH // HEADS) ** 0.5))
        orders = {"query": [0, 2, 1, 3], "key": [0, 2, 3, 1], "value": [0, 2, 1, 3]}
        query, key, value = (
            self.heads(f"attention/{one}", self.dense(f"attention/{one}", "x", WIDTH, WIDTH), order)
            for one, order in orders.items()
        )
        scores = self.node("MatMul", "attention/scores", [query, key], "scores")
        scores = self.node("Div", "attention/scores", [scores, "root"], "scaled")
        weights = self.node("Softmax", "attention", [scores], "weights", axis=-1)
        context = self.node("MatMul", "attention/context", [weights, value], "context")
        context = self.node("Transpose", "attention/context", [context], "back", perm=[0, 2, 1, 3])
        context = self.node("Reshape", "attention/context", [context, "join"], "joined")
        y = self.dense("attention/out", context, WIDTH, WIDTH)
        x = self.norm("norm1", self.node("Add", "residual1", ["x", y], "first"))
        y = self.dense("feedforward/up", x, WIDTH, 4 * WIDTH)
        y = self.node("Relu", "feedforward", [y], "active")
        y = self.dense("feedforward/down", y, 4 * WIDTH, WIDTH)
        y = self.norm("norm2", self.node("Add", "residual2", [x, y], "second"))
        sizes = ["batch", TOKENS, WIDTH]
        graph = helper.make_graph(
            self.nodes,
            f"block-{self.bits}-bits",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
            [helper.make_tensor_value_info(y, TensorProto.FLOAT, sizes)],
            self.weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main(target):
    # named, so that the nodes of sessions made from here on are timed
    opscope.init("onnxruntime")
    x = np.random.default_rng(1).standard_normal((BATCH, TOKENS, WIDTH)).astype(np.float32)
    for bits in (32, 8):
        model = Block(bits).model().SerializeToString()
        session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
        path = f"{target}-{bits}.opscope"
        with opscope.capture(path, force=True):
            opscope.step()
            for _ in range(20):
                session.run(None, {"x": x})
                opscope.step()
        if Path(path).exists():  # under `opscope run` the run's profile has it all
            print(f"\n{bits} bits", flush=True)
            report = [sys.executable, "-m", "opscope", "report", path, "--width", "120"]
            subprocess.run(report, check=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "block")
