"""What a graph itself says of its nodes, found by running it with every tensor as an output."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnxruntime as ort

from opscope.core.schema import DTYPE_NAMES

#: An operator that is not ONNX's has no type that a model may declare for its output.
_QUIET = 4


def saved(made, level, folder):
    """The model that ONNX Runtime makes of a model at an optimisation level."""
    path = folder / "saved-by-the-test.onnx"
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(path)
    options.log_severity_level = _QUIET
    ort.InferenceSession(
        made.proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return onnx.load(path)


def tensors(model, feed):
    """Name → (dtype, sizes) of every tensor of the main graph in a run of it, weights included."""
    whole = onnx.ModelProto.FromString(model.SerializeToString())
    known = {one.name for one in whole.graph.output}
    for node in whole.graph.node:
        for name in node.output:
            if name and name not in known:
                whole.graph.output.add().name = name
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = _QUIET
    session = ort.InferenceSession(
        whole.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [one.name for one in session.get_outputs()]
    found = {name: _of(value) for name, value in zip(names, session.run(names, feed), strict=True)}
    found |= {name: _of(value) for name, value in feed.items()}
    for weight in whole.graph.initializer:
        found[weight.name] = (
            DTYPE_NAMES[np.dtype(onnx.helper.tensor_dtype_to_np_dtype(weight.data_type)).name],
            tuple(weight.dims),
        )
    return found


def _of(value):
    return DTYPE_NAMES[value.dtype.name], value.shape


def product_flops(node, known):
    """FLOP of a node's product by the formula of its op: 2 per multiply-add; 0 for other ops."""
    sizes = [known[name][1] if name else () for name in node.input]
    out = known[node.output[0]][1]
    fields = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    if node.op_type in ("Conv", "FusedConv"):
        return 2 * math.prod(out) * math.prod(sizes[1][1:])
    if node.op_type == "QLinearConv":
        return 2 * math.prod(out) * math.prod(sizes[3][1:])
    if node.op_type in ("Gemm", "FusedGemm"):
        return 2 * math.prod(out) * sizes[0][0 if fields.get("transA") else 1]
    if node.op_type in ("MatMul", "MatMulInteger"):
        return 2 * math.prod(out) * sizes[0][-1]
    if node.op_type == "FusedMatMul":
        return 2 * math.prod(out) * sizes[0][-2 if fields.get("transA") else -1]
    if node.op_type == "QLinearMatMul":
        return 2 * math.prod(out) * sizes[0][-1]
    if "MatMul" in node.op_type or "Gemm" in node.op_type or "Conv" in node.op_type:
        raise AssertionError(f"the oracle lacks {node.op_type}")
    return 0
