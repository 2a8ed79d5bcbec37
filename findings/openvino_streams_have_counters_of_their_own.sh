#!/usr/bin/env bash
# One would guess: as `profiling_info` is a mean over all runs of a compiled model, the k-th run is k times the mean
# after it, less k - 1 times the mean before it.
# What happens: a model with several streams has counters for each stream; a request reports those of its last stream,
# and that formula gives negative times.
# Seen with: openvino 2026.4.1 (CPU)
# Why it matters to a profiler: nothing tells which stream ran a request, so the time of a run cannot be taken from
# these counters. `OPTIMAL_NUMBER_OF_INFER_REQUESTS` above 1 says that there are several; the default has one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'openvino==2026.4.1' numpy
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import openvino
from openvino import opset13

x = opset13.parameter([-1, 512], np.float32, name="x")
weights = opset13.constant(np.ones((512, 512), np.float32))
model = openvino.Model([opset13.matmul(x, weights, False, False)], [x], "product")
options = {"PERF_COUNT": True, "NUM_STREAMS": 2}
compiled = openvino.Core().compile_model(model, "CPU", options)
queue = openvino.AsyncInferQueue(compiled, 2)
for number in range(20):
    queue.start_async({0: np.ones((4096 if number % 2 else 1, 512), np.float32)})
queue.wait_all()
means = [sum(node.real_time.total_seconds() for node in request.profiling_info) * 1e6 for request in queue]
print("openvino", openvino.__version__, "requests", compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
print("20 runs of one model; the means by its two requests, us:", [round(mean) for mean in means])
request = compiled.create_infer_request()
totals = [0.0]
for number in range(1, 41):
    request.infer({0: np.ones((64, 512), np.float32)})
    mean = sum(node.real_time.total_seconds() for node in request.profiling_info) * 1e6
    totals.append((20 + number) * mean)
steps = [after - before for before, after in zip(totals[1:], totals[2:])]
print("39 more runs by the formula, us: from", round(min(steps)), "to", round(max(steps)))
assert compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == 2
assert min(steps) < 0
PYTHON
