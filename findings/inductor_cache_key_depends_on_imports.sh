#!/usr/bin/env bash
# One would guess: the key of Inductor's compile cache is made of the graph, the inputs and the configuration, so the
# same program finds its entry again.
# What happens: it also depends on which modules were imported before: an object in the graph (a memory format) is
# pickled by the first module of `sys.modules` that has it under its name. With `multiprocessing`'s alias
# `__mp_main__` in front the key is another, and the graph is compiled again.
# Seen with: torch 2.13.0 (CPU)
# Why it matters to a profiler: a tool that is loaded into a program must not import such modules earlier than the
# program does; otherwise all compiled regions miss their cache while they are observed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'torch==2.13.0' numpy
cd "$folder"
cat > program.py <<'PYTHON'
import sys

if sys.argv[1] == "first":
    import multiprocessing
import torch
from torch._dynamo.utils import counters


@torch.compile
def step(x):
    return torch.relu(x.contiguous(memory_format=torch.channels_last)) * 2


step(torch.ones(2, 3, 4, 4))
print("hit" if counters["inductor"]["fxgraph_cache_hit"] else "miss")
PYTHON
export TORCHINDUCTOR_CACHE_DIR="$folder/cache"
"$folder/venv/bin/python" -c 'import torch; print("torch", torch.__version__)'
seen=
for order in later later first first; do
    answer=$("$folder/venv/bin/python" program.py $order)
    echo "multiprocessing imported $order: cache $answer"
    seen="$seen $answer"
done
[ "$seen" = " miss hit miss hit" ]
