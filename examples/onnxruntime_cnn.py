"""Runs a small CNN made here in ONNX Runtime, and prints the report of its nodes."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import opscope

CLASSES, BATCH = 10, 8


def model():
    random = np.random.default_rng(0)
    weights = []

    def weight(name, *shape):
        values = random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)
        weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def node(op, name, inputs, output, **attributes):
        return helper.make_node(op, inputs, [output], name=f"/cnn/{name}/{op}", **attributes)

    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        node(
            "Conv",
            "conv1",
            ["images", weight("w1", 16, 1, 5, 5), weight("b1", 16)],
            "c1",
            pads=[2] * 4,
        ),
        node("Relu", "act1", ["c1"], "a1"),
        node("MaxPool", "pool1", ["a1"], "p1", **pool),
        node(
            "Conv",
            "conv2",
            ["p1", weight("w2", 32, 16, 5, 5), weight("b2", 32)],
            "c2",
            pads=[2] * 4,
        ),
        node("Relu", "act2", ["c2"], "a2"),
        node("MaxPool", "pool2", ["a2"], "p2", **pool),
        node("Flatten", "flatten", ["p2"], "flat"),
        node(
            "Gemm",
            "fc1",
            ["flat", weight("w3", 120, 7 * 7 * 32), weight("b3", 120)],
            "f1",
            transB=1,
        ),
        node("Relu", "act3", ["f1"], "a3"),
        node(
            "Gemm",
            "fc2",
            ["a3", weight("w4", CLASSES, 120), weight("b4", CLASSES)],
            "logits",
            transB=1,
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "cnn",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 1, 28, 28])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main(target):
    # named, so that the nodes of sessions made from here on are timed
    opscope.init("onnxruntime")
    session = ort.InferenceSession(model().SerializeToString(), providers=["CPUExecutionProvider"])
    images = np.random.default_rng(1).standard_normal((BATCH, 1, 28, 28)).astype(np.float32)
    with opscope.capture(target, force=True):
        opscope.step()
        for _ in range(20):
            session.run(None, {"images": images})
            opscope.step()
    if Path(target).exists():  # under `opscope run` the run's profile has it all
        command = [sys.executable, "-m", "opscope", "report", target, "--width", "120"]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cnn.opscope")
