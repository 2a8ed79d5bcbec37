#!/usr/bin/env bash
# One would guess: `profiling_info` of an OpenVINO infer request has the times of that request's last run.
# What happens: it has the mean over all runs of all requests of the compiled model so far. A request that ran once,
# with a tiny input, reports a time that is many times as long as its own call took.
# Seen with: openvino 2026.4.1 (CPU)
# Why it matters to a profiler: a first slow run stays in every later sample, and a slow run in the middle is hardly
# seen. The k-th run is k times the mean after it, less k - 1 times the mean before it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'openvino==2026.4.1' numpy
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import time

import numpy as np
import openvino
from openvino import opset13

x = opset13.parameter([-1, 1024], np.float32, name="x")
weights = opset13.constant(np.ones((1024, 1024), np.float32))
product = opset13.matmul(x, weights, False, False)
model = openvino.Model([product], [x], "product")
compiled = openvino.Core().compile_model(model, "CPU", {"PERF_COUNT": True})
large, small = compiled.create_infer_request(), compiled.create_infer_request()


def node_time(request):
    return sum(node.real_time.total_seconds() for node in request.profiling_info) * 1e6


for _ in range(9):
    large.infer({0: np.ones((2048, 1024), np.float32)})
before = node_time(large)
begin = time.perf_counter()
small.infer({0: np.ones((1, 1024), np.float32)})
took = (time.perf_counter() - begin) * 1e6
print("openvino", openvino.__version__)
print(f"9 runs of 2048 rows: {before:.0f} us a run by profiling_info")
print(f"1 run of 1 row in another request: took {took:.0f} us in all, profiling_info {node_time(small):.0f} us")
print(f"the run itself, by 10 x mean less 9 x mean: {10 * node_time(small) - 9 * before:.0f} us")
assert node_time(small) > 2 * took
assert abs(node_time(small) - 0.9 * before) < 0.1 * before
assert node_time(large) == node_time(small)
PYTHON
