"""What PyTorch itself writes under TORCH_TRACE and as memory timelines, held against its own counters and sums."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import opscope

#: A graph break, and two further sizes; the backend is Dynamo's and AOTAutograd's, which need no C++ compiler.
COMPILES = """
import json, sys
import torch
from torch._dynamo.utils import counters

def f(x, w):
    y = torch.relu(x @ w) + 1
    torch._dynamo.graph_break()
    return torch.tanh(y).sum()

g = torch.compile(f, dynamic=False, backend="aot_eager")
w = torch.randn(16, 16, requires_grad=True)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
    for rows in (8, 8, 4, 2):
        g(torch.randn(rows, 16), w).backward()
recorded.export_chrome_trace(sys.argv[1] + "/trace.json")
kept = {"graphs": counters["stats"]["unique_graphs"], "breaks": sum(counters["graph_break"].values()),
        "reasons": len(counters["graph_break"])}
json.dump(kept, open(sys.argv[1] + "/counters.json", "w"))
"""
TRAINS = """
import sys, torch
net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.Adam(net.parameters())
with torch.profiler.profile(record_shapes=True, profile_memory=True, with_stack=True) as recorded:
    for _ in range(2):
        optimizer.zero_grad()
        net(torch.randn(8, 16)).sum().backward()
        optimizer.step()
for name in ("/t.json", "/t.raw.json.gz"):
    recorded.export_memory_timeline(sys.argv[1] + name, device="cpu")
"""
#: PyTorch's kinds of memory, by its numbers.
NAMES = (
    "parameters", "optimizer state", "inputs", "temporaries", "activations", "gradients", "details of autograd",
    "unknown",
)  # fmt: skip


def ran(code: str, folder: Path, **environ: str) -> None:
    command = [sys.executable, "-c", code, str(folder)]
    subprocess.run(command, check=True, env={**os.environ, **environ}, capture_output=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The log, the trace and PyTorch's own counters of one program."""
    path: Path = tmp_path_factory.mktemp("compiled")
    ran(COMPILES, path, TORCH_TRACE=str(path / "log"))
    return path


def counted(profile: Any, what: str) -> dict[str, int]:
    rows = profile.trace["notes"].select("what", "how_many").rows()
    start = f"torch.compile: {what}"
    return {text.removeprefix(start): count for text, count in rows if text.startswith(start)}


def test_a_log_has_the_graphs_breaks_and_recompilations_that_pytorch_counted(folder):
    counters = json.loads((folder / "counters.json").read_text())
    (log,) = (folder / "log").iterdir()
    profile = opscope.load(log)
    assert counted(profile, "graphs made since the log began") == {"": counters["graphs"]}
    breaks = counted(profile, "graph breaks: ")
    assert (len(breaks), sum(breaks.values())) == (counters["reasons"], counters["breaks"])
    assert "torch._dynamo.graph_break()" in next(iter(breaks))
    texts = [
        text for text in profile.trace["ranges"]["text"].cast(str) if text.startswith("compile ")
    ]
    forward = [text for text in texts if "backward" not in text]
    assert len(forward) == counters["graphs"]  # each frame has one graph here
    again = [text for text in forward if not text.split()[1].endswith("/0")]
    assert sum(counted(profile, "recompilations: ").values()) == len(again) == 2 * 2
    assert all("size mismatch" in reason for reason in counted(profile, "recompilations: "))
    assert any("torch_dynamo_resume_in_f_at_" in text for text in forward)


def test_a_log_beside_its_trace_is_of_the_same_process(folder):
    (log,) = (folder / "log").iterdir()
    alone = opscope.load(folder / "trace.json")
    both = opscope.load([folder / "trace.json", log])
    assert len(both.trace["processes"]) == len(alone.trace["processes"])
    assert both.op_totals().height == alone.op_totals().height
    assert both.op_totals()["calls"].sum() == alone.op_totals()["calls"].sum()
    found = {row["detector"]: row for row in both.advice().to_dicts() if row["outcome"] == "found"}
    assert "torch._dynamo.graph_break()" in found["graph_breaks"]["evidence"]


def test_memory_timelines_add_up_to_what_they_hold(tmp_path):
    ran(TRAINS, tmp_path)
    with gzip.open(tmp_path / "t.raw.json.gz", "rt") as file:
        changes = json.load(file)
    steps = [place for place, change in enumerate(changes) if change[1] != 3]
    sums = list(accumulate(changes[place][2] for place in steps))
    _, sizes = json.loads((tmp_path / "t.json").read_text())
    single, summed = (opscope.load(tmp_path / name) for name in ("t.raw.json.gz", "t.json"))
    assert single.memory()["peak_memory"].to_list() == [max(sums)]
    assert single.trace["allocations"]["total"].to_list()[-1] == sums[-1]
    assert summed.memory()["peak_memory"].to_list() == [max(map(sum, sizes))]
    assert summed.trace["allocations"]["total"].to_list()[-1] == sum(sizes[-1])
    kinds: Counter[int] = Counter()
    for _, _, size, kind in changes[: steps[sums.index(max(sums))] + 1]:
        kinds[kind] += size
    (said,) = [what for what in single.trace["notes"]["what"] if "at the peak of" in what]
    assert len(kinds) > 2
    assert said.endswith(
        ", ".join(f"{size:,} {NAMES[kind]}" for kind, size in kinds.most_common() if size)
    )
