#!/usr/bin/env bash
# One would guess: "Total Allocated" of a [memory] event on the CPU is what the process's tensors hold after it.
# What happens: a tensor in shared memory, as a loader's worker sends it, is reported with a total of 0, however
# much is in use, and so is its release; its size stands in "Total Reserved". The events before and after have the
# allocator's total, which leaves the shared tensor out.
# Seen with: torch 2.13.0 (CPU)
# Why it matters to a profiler: the curve of memory falls to 0 at each batch of a loader with workers, and blocks in
# use at the peak add up to more than the peak.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'torch==2.13.0' numpy
cd "$folder"
cat > program.py <<'PYTHON'
import json

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    loader = DataLoader(TensorDataset(torch.ones(8, 1024)), batch_size=4, num_workers=1)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        held = torch.ones(1000)
        for (batch,) in loader:
            kept = batch
        after = torch.ones(10)
    recorded.export_chrome_trace("trace.json")
    with open("trace.json") as file:
        events = [event for event in json.load(file)["traceEvents"] if event.get("name") == "[memory]"]
    events.sort(key=lambda event: event["ts"])
    rows = [(e["args"]["Bytes"], e["args"]["Total Allocated"], e["args"]["Total Reserved"]) for e in events]
    batches = [row for row in rows if row[0] == batch.nbytes]
    released = [row for row in rows if row[0] == -batch.nbytes]
    print("torch", torch.__version__)
    print("bytes, Total Allocated, Total Reserved of the batches:", batches)
    print("and of their releases:", released)
    last = [row for row in rows if row[0] == after.nbytes][-1]
    print("and of a tensor of", after.nbytes, "bytes, beside one of", held.nbytes, "that is in use:", last)
    assert len(batches) == 2, rows
    assert all(total == 0 and reserved == size for size, total, reserved in batches), batches
    assert released and all(total == 0 for _, total, _ in released), rows
    assert last[1] >= held.nbytes, rows
PYTHON
"$folder/venv/bin/python" program.py
