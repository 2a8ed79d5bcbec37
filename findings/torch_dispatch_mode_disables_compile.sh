#!/usr/bin/env bash
# One would guess: ops of a compiled function are seen by a TorchDispatchMode, or the mode raises; either way the
# function stays compiled.
# What happens: inside the mode the function is not compiled at all: no graph is captured and every op runs one by
# one, without a warning. A class whose `ignore_compile_internals` returns True leaves it compiled.
# Seen with: torch 2.13.0 (CPU)
# Why it matters to a profiler: an observer built on dispatch modes measures another program than the one that it was
# asked about: slower, unfused, and without the compile time.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'torch==2.13.0' numpy
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import torch
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode


class Observer(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.ops = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.ops.append(str(function))
        return function(*args, **(kwargs or {}))


class Considerate(Observer):
    @classmethod
    def ignore_compile_internals(cls):
        return True


def graphs(kind):
    torch._dynamo.reset()
    counters.clear()

    @torch.compile
    def step(x):
        return torch.relu(x) * 2 + 1

    with kind() as observer:
        step(torch.ones(8))
    return counters["stats"]["unique_graphs"], observer.ops


print("torch", torch.__version__)
plain, ops = graphs(Observer)
print("graphs compiled under a plain mode:", plain, " ops that ran one by one:", ops[-3:])
other, _ = graphs(Considerate)
print("with ignore_compile_internals:     ", other)
assert plain == 0 and any("relu" in op for op in ops) and other == 1
PYTHON
