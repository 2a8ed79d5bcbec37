#!/usr/bin/env bash
# One would guess: with record_shapes=True each op's input shapes are in the trace, or their absence is marked.
# What happens: a list of up to 30 tensors is written with every shape; a list of 31 as an empty list `[]`, which is
# also what a scalar or a missing tensor looks like. Its dtype is `TensorList` in both cases.
# Seen with: torch 2.13.0 (CPU)
# Why it matters to a profiler: foreach optimizers and `torch.cat` of real models have longer lists. Bytes and FLOPs
# computed from the trace come out as 0 unless an empty list is taken as unknown.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'torch==2.13.0' numpy
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import json

import torch
from torch.profiler import ProfilerActivity, profile


def arguments(count):
    tensors = [torch.ones(4, 5) for _ in range(count)]
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        torch._foreach_add_(tensors, 1.0)
    recorded.export_chrome_trace("trace.json")
    events = json.load(open("trace.json"))["traceEvents"]
    return next(e["args"] for e in events if e.get("name") == "aten::_foreach_add_")


print("torch", torch.__version__)
for count in (30, 31):
    args = arguments(count)
    print(count, "tensors: shapes of the list", len(args["Input Dims"][0]), " types", args["Input type"])
    assert args["Input Dims"][0] == ([[4, 5]] * 30 if count == 30 else []), args
    assert args["Input Dims"][1] == [], args  # the scalar
    assert args["Input type"] == ["TensorList", "Scalar"], args
PYTHON
