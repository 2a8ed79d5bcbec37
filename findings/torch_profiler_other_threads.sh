#!/usr/bin/env bash
# One would guess: torch.profiler records the process, so an op in any of its Python threads is in the trace.
# What happens: only the thread that starts the profiler is recorded, and what autograd starts from it. An op in a
# thread that ran before, or that starts while the profiler runs, leaves no event, and nothing says so.
# `profile_all_threads` of the experimental configuration records them.
# Seen with: torch 2.13.0 (CPU)
# Why it matters to a profiler: a CPU trace may lack whole workers (a server's threads, a prefetcher). Idle time and
# totals hold for the recorded threads alone; a trace cannot tell how many there were.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'torch==2.13.0' numpy
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import threading

import torch
from torch.profiler import ProfilerActivity, profile

x = torch.ones(64, 64)


def ops(config=None):
    go = threading.Event()

    def wait_and_multiply():
        go.wait()
        torch.mm(x, x)

    before = threading.Thread(target=wait_and_multiply)
    before.start()
    with profile(activities=[ProfilerActivity.CPU], experimental_config=config) as recorded:
        torch.add(x, x)
        go.set()
        before.join()
        later = threading.Thread(target=lambda: torch.mm(x, x))
        later.start()
        later.join()
    return {event.key: event.count for event in recorded.key_averages()}


usual = ops()
every = ops(torch._C._profiler._ExperimentalConfig(profile_all_threads=True))
print("torch", torch.__version__)
print("as it comes:            add", usual.get("aten::add", 0), " mm", usual.get("aten::mm", 0), " (2 ran)")
print("profile_all_threads:    add", every.get("aten::add", 0), " mm", every.get("aten::mm", 0))
assert usual["aten::add"] == 1 and "aten::mm" not in usual, usual
assert every["aten::mm"] == 2, every
PYTHON
