#!/usr/bin/env bash
# One would guess: an op that ran once is one event in ExecuTorch's ETDump, so the events inside `Method::execute`
# add up to it.
# What happens: a portable op is two rows, `native_call_<op>` and around it `OPERATOR_CALL`; neither names the other,
# and their sum is nearly twice the time of the method.
# Seen with: executorch 1.5.1, torch 2.13.0 (CPU)
# Why it matters to a profiler: a table by event name shows half of the time as one op called OPERATOR_CALL. One of
# the two has to be left out, by nesting.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'executorch==1.5.1' 'torch==2.13.0' numpy
cd "$folder"
"$folder/venv/bin/python" - 2>/dev/null <<'PYTHON'
import warnings

warnings.simplefilter("ignore")
from importlib.metadata import version

import torch
from executorch.devtools import Inspector
from executorch.exir import to_edge_transform_and_lower
from executorch.extension.pybindings import portable_lib


class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.sin(x + y) * x


x = torch.ones(512, 512)
program = to_edge_transform_and_lower(torch.export.export(Model(), (x, x))).to_executorch()
module = portable_lib._load_for_executorch_from_buffer(program.buffer, enable_etdump=True)
for _ in range(5):
    module.forward((x, x))
module.write_etdump_result_to_file("program.etdp")
events = [
    (event.name, sum(event.perf_data.raw), len(event.perf_data.raw))
    for block in Inspector(etdump_path="program.etdp").event_blocks
    for event in block.events
    if block.name == "Execute"
]
print("executorch", version("executorch"))
for name, total, runs in events:
    print(f"{name:24} {total:9.3f} ms in {runs} runs")
method = sum(total for name, total, _ in events if name == "Method::execute")
rows = sum(total for name, total, _ in events if name != "Method::execute")
names = [name for name, _, _ in events]
assert names.count("OPERATOR_CALL") == 3 and sum(name.startswith("native_call_") for name in names) == 3, names
assert rows > 1.5 * method, (rows, method)
PYTHON
