#!/usr/bin/env bash
# One would guess: the node events of an ONNX Runtime profile add up to the time of the run.
# What happens: a Loop (or If, Scan) node has an event, and so has each node of its body, with the same category and
# no field that says which lies in which. Their sum is nearly twice the run; only the times nest.
# Seen with: onnxruntime 1.31.0, onnx 1.23.2
# Why it matters to a profiler: tables by op type that add all node events report more time than passed, and put the
# loop first although its body did the work.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'onnxruntime==1.31.0' 'onnx==1.23.2' numpy
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import json

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

value = helper.make_tensor_value_info
body = helper.make_graph(
    [
        helper.make_node("MatMul", ["carried", "w"], ["next"], name="inner"),
        helper.make_node("Identity", ["condition"], ["go_on"], name="go_on"),
    ],
    "body",
    [value("i", TensorProto.INT64, []), value("condition", TensorProto.BOOL, []), value("carried", TensorProto.FLOAT, [256, 256])],
    [value("go_on", TensorProto.BOOL, []), value("next", TensorProto.FLOAT, [256, 256])],
)
graph = helper.make_graph(
    [helper.make_node("Loop", ["count", "", "x"], ["y"], name="loop", body=body)],
    "graph",
    [value("x", TensorProto.FLOAT, [256, 256]), value("w", TensorProto.FLOAT, [256, 256])],
    [value("y", TensorProto.FLOAT, [256, 256])],
    [helper.make_tensor("count", TensorProto.INT64, [], [20])],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
onnx.checker.check_model(model)
options = onnxruntime.SessionOptions()
options.enable_profiling = True
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
x = np.full((256, 256), 1 / 256, np.float32)
for _ in range(3):
    session.run(None, {"x": x, "w": x})
events = json.load(open(session.end_profiling()))
nodes = [e for e in events if e.get("cat") == "Node" and e["name"].endswith("_kernel_time")]
runs = sum(e["dur"] for e in events if e["name"] == "model_run")
inner = sum(e["dur"] for e in nodes if e["name"] == "inner_kernel_time")
loops = sum(e["dur"] for e in nodes if e["name"] == "loop_kernel_time")
print("onnxruntime", onnxruntime.__version__)
print(f"runs {runs} us, all node events {sum(e['dur'] for e in nodes)} us: loop {loops}, its products {inner}")
fields = {name: sorted(next(e for e in nodes if e["name"] == name)["args"]) for name in ("loop_kernel_time", "inner_kernel_time")}
print("fields of both:", fields["inner_kernel_time"])
assert loops + inner > 1.5 * runs
assert not any("parent" in key or "graph" in key for keys in fields.values() for key in keys), fields
PYTHON
