"""Runs of an ONNX model, with or without sleeping between them: CAUSE STEPS."""

import sys

import numpy as np
import onnxruntime
from clock import asleep
from onnx import TensorProto, helper, numpy_helper


def model(width=1024):
    random = np.random.default_rng(0)
    weights = [numpy_helper.from_array(random.standard_normal((width, width)).astype(np.float32), name)
               for name in ("a", "b")]  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [256, width]) for name in ("x", "y")
    ]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main():
    cause, steps = sys.argv[1], int(sys.argv[2])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model().SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])  # fmt: skip
    x = np.ones((256, 1024), np.float32)
    for _ in range(steps):
        session.run(None, {"x": x})
        if cause == "sleeping":
            asleep("outside", 0.15)


if __name__ == "__main__":
    main()
