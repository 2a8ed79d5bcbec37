#!/usr/bin/env bash
# One would guess: in a trace of activation checkpointing, a backward op is linked to the forward op whose saved
# tensors it uses, and the recomputation is marked as such.
# What happens: with `use_reentrant=False` the recomputed ops have sequence numbers of their own, which no backward
# op carries; the backward ops carry those of the first forward, which saved nothing. No field says that an op
# recomputes; only its time inside the backward node does.
# Seen with: torch 2.13.0 (CPU)
# Why it matters to a profiler: by sequence numbers a recomputation looks like another forward pass in the middle of
# the backward one. Direction has to follow from where an op runs as well.
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
from torch.utils.checkpoint import checkpoint

x = torch.ones(8, 8, requires_grad=True)
w = torch.ones(8, 8, requires_grad=True)
with profile(activities=[ProfilerActivity.CPU]) as recorded:
    checkpoint(lambda value: torch.sin(torch.mm(value, w)), x, use_reentrant=False).sum().backward()
recorded.export_chrome_trace("trace.json")
events = [e for e in json.load(open("trace.json"))["traceEvents"] if e.get("cat") == "cpu_op"]
sequence = lambda name: [e["args"].get("Sequence number") for e in events if e["name"] == name]  # noqa: E731
first, again = sequence("aten::sin")
backward = sequence("SinBackward0")
nodes = [e for e in events if e["name"].startswith("autograd::engine::evaluate_function")]
recomputed = [e for e in events if e["name"] == "aten::sin"][1]
around = [n for n in nodes if n["ts"] <= recomputed["ts"] and recomputed["ts"] < n["ts"] + n["dur"]]
print("torch", torch.__version__)
print("sin: first", first, " recomputed", again, " its backward op", backward)
print("the recomputed op lies in time within", [n["name"] for n in around])
print("fields of the recomputed op:", sorted(recomputed["args"]))
assert backward == [first] and again != first, (first, again, backward)
assert len(around) == 1
assert not any("recomp" in key.lower() or "checkpoint" in key.lower() for key in recomputed["args"])
PYTHON
