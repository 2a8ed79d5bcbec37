#!/usr/bin/env bash
# One would guess: asking Inductor to remember which ops a kernel fuses (`trace.provenance_tracking_level`) is
# bookkeeping; the code and the compile cache stay as they are.
# What happens: the level is part of the key of the compile cache. A program that was compiled before is compiled
# again as soon as the level is raised, and the code is the same.
# Seen with: torch 2.13.0 (CPU)
# Why it matters to a profiler: a profiler that turns the level on to name a kernel's ops makes the run that it
# observes compile everything anew, and reports a compile time that the program does not have.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'torch==2.13.0' numpy
cd "$folder"
cat > program.py <<'PYTHON'
import sys

import torch
import torch._inductor.config
from torch._dynamo.utils import counters

torch._inductor.config.trace.provenance_tracking_level = int(sys.argv[1])


@torch.compile
def step(x):
    return torch.relu(x) * 2


step(torch.ones(8))
print("hit" if counters["inductor"]["fxgraph_cache_hit"] else "miss")
PYTHON
export TORCHINDUCTOR_CACHE_DIR="$folder/cache"
"$folder/venv/bin/python" -c 'import torch; print("torch", torch.__version__)'
seen=
for level in 0 0 1 1; do
    answer=$("$folder/venv/bin/python" program.py $level)
    echo "level $level: cache $answer"
    seen="$seen $answer"
done
[ "$seen" = " miss hit miss hit" ]
