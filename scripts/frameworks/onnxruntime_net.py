"""The model of docs/frameworks.md in ONNX Runtime, which runs it and does not train it."""

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper


def model():
    random = np.random.default_rng(0)
    sizes = {"conv.w": (8, 3, 3, 3), "conv.b": (8,), "fc.w": (10, 8 * 14 * 14), "fc.b": (10,)}
    weights = [
        numpy_helper.from_array(random.standard_normal(size).astype(np.float32), name)
        for name, size in sizes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "conv.w", "conv.b"], ["c"], name="/net/conv/Conv"),
        helper.make_node("Relu", ["c"], ["a"], name="/net/act/Relu"),
        helper.make_node("Flatten", ["a"], ["f"], name="/net/Flatten"),
        helper.make_node("Gemm", ["f", "fc.w", "fc.b"], ["y"], name="/net/fc/Gemm", transB=1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 3, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 10])
    graph = helper.make_graph(nodes, "net", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def infer(steps):
    import opscope

    options = ort.SessionOptions()
    # further levels fuse the activation and compute in blocks of channels, whose size is the processor's
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = ort.InferenceSession(
        model().SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    images = np.ones((8, 3, 16, 16), np.float32)
    opscope.step()
    for _ in range(steps):
        session.run(None, {"x": images})  # conv act fc
        opscope.step()
