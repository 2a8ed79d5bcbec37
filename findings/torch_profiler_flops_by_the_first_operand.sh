#!/usr/bin/env bash
# One would guess: the profiler's FLOPs of an elementwise op are the elements of its result, and those of a sparse
# product go by what is stored.
# What happens: an elementwise op has the elements of its first operand: (4, 1) * (1, 5) is 4 FLOPs, its mirror image 5,
# the result 20; sums are counted likewise. A sparse matrix times a dense one is counted as if all of it were stored.
# Seen with: torch 2.13.0 (CPU)
# Why it matters to a profiler: broadcasts are everywhere in models, so FLOPs that are taken over from a trace's own
# field disagree with those computed from shapes, and with themselves when operands change places.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'torch==2.13.0' numpy
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import warnings

import torch
from torch.profiler import ProfilerActivity, profile

warnings.simplefilter("ignore")


def flops(call):
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_flops=True) as recorded:
        call()
    return {event.key: event.flops for event in recorded.key_averages() if event.flops}


column, row = torch.ones(4, 1), torch.ones(1, 5)
sparse = torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (4, 5))
dense = torch.ones(5, 6)
seen = {
    "column * row": flops(lambda: column * row),
    "row * column": flops(lambda: row * column),
    "column + row": flops(lambda: column + row),
    "sparse, 2 stored values, times 5 x 6": flops(lambda: torch.sparse.mm(sparse, dense)),
}
print("torch", torch.__version__)
for name, value in seen.items():
    print(f"{name:38} {value}")
assert list(seen.values()) == [
    {"aten::mul": 4},
    {"aten::mul": 5},
    {"aten::add": 4},
    {"aten::addmm": 2 * 4 * 5 * 6},
], seen
PYTHON
