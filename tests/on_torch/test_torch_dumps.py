"""What PyTorch itself writes of collectives and of memory: flight-recorder dumps of gloo, a snapshot of a profile."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import opscope
from tests.gloo import unaborted

#: Three ranks: rank 2 does not come to the last all_reduce.
HANGS = """
import os, sys, time
import torch, torch.distributed as dist
import torch._C._distributed_c10d as c10d

rank, folder = int(sys.argv[1]), sys.argv[2]
store = dist.FileStore(os.path.join(folder, "store"), 3)
dist.init_process_group("gloo", store=store, rank=rank, world_size=3)
for _ in range(3):
    dist.all_reduce(torch.ones(64, 32))
if rank != 2:
    waited = dist.all_reduce(torch.ones(1024), async_op=True)
time.sleep(1)  # gloo's thread retires what is done a moment later
open(os.path.join(folder, f"trace_{rank}"), "wb").write(c10d._dump_fr_trace())
open(os.path.join(folder, f"trace_{rank}.json"), "wb").write(c10d._dump_fr_trace_json())
open(os.path.join(folder, f"done_{rank}"), "w").close()
while len([one for one in os.listdir(folder) if one.startswith("done")]) < 3:
    time.sleep(0.05)
os._exit(0)
"""


def test_the_dumps_of_a_job_of_gloo_that_hangs_say_who_is_missing_and_where(tmp_path):
    if not hasattr(torch._C._distributed_c10d, "_dump_fr_trace"):
        pytest.skip("this PyTorch has no flight recorder without NCCL")
    program = tmp_path / "hangs.py"
    program.write_text(HANGS)

    def run() -> subprocess.CompletedProcess[str]:
        for left in tmp_path.glob("[sdt][tor]*"):
            left.unlink()
        ranks = [
            subprocess.Popen(
                [sys.executable, str(program), str(rank), str(tmp_path)],
                env={"PATH": "/usr/bin", "TORCH_FR_BUFFER_SIZE": "2000"},
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(3)
        ]
        errors = [rank.communicate(timeout=120)[1] for rank in ranks]
        code = max(abs(rank.returncode) for rank in ranks)
        return subprocess.CompletedProcess([], code, "", "".join(errors))

    done = unaborted(run)
    assert done.returncode == 0, done.stderr
    for names in (["trace_0", "trace_1", "trace_2"], [f"trace_{rank}.json" for rank in range(3)]):
        profile = opscope.load([tmp_path / name for name in names])
        (fault,) = profile.collective_faults().rows(named=True)
        assert (fault["fault"], fault["missing_ranks"]) == ("not entered by all", "2")
        assert (fault["collective"], fault["kind"], fault["entered"]) == (4, "all_reduce", 2)
        last = {row["rank"]: row for row in profile.last_collectives().rows(named=True)}
        assert [last[rank]["waits_for"] for rank in range(3)] == ["2", "2", None]
        assert [last[rank]["bytes"] for rank in range(3)] == [4096, 4096, 8192]
        if names[0] == "trace_0":  # PyTorch leaves stacks out of the JSON
            line = next(n for n, text in enumerate(HANGS.splitlines(), 1) if "waited =" in text)
            assert last[0]["source"] == f"{program}:{line}"


def test_the_snapshot_that_pytorch_makes_of_a_profile_is_read_with_its_own_sums(tmp_path):
    viz = pytest.importorskip("torch.cuda._memory_viz")
    from torch.profiler import ProfilerActivity, profile

    model = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)
    )
    with profile(
        activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_stack=True
    ) as recorded:
        for _ in range(3):
            model(torch.ones(64, 256)).sum().backward()
    snapshot = viz._profile_to_snapshot(recorded)
    path: Path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    trace = opscope.load(path)
    (entries,) = [one for one in snapshot["device_traces"] if one]
    by_action = {
        action: [one["size"] for one in entries if one["action"] == action]
        for action in ("alloc", "free_completed")
    }
    memory = trace.memory().row(0, named=True)
    assert memory["allocated"] == sum(by_action["alloc"])
    assert memory["released"] == sum(by_action["free_completed"])
    active = [
        block["size"]
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    ]
    assert memory["in_use"] == sum(active)
    now = peak = sum(active) - memory["allocated"] + memory["released"]
    for one in entries:
        change = {"alloc": one["size"], "free_completed": -one["size"]}.get(one["action"], 0)
        now += change
        peak = max(peak, now)
    assert memory["peak_memory"] == peak
    assert trace.memory_holders()["held"].sum() == peak
    # PyTorch's own page adds up unused memory so
    unused = sum(
        block["size"]
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        if block["state"] != "active_allocated"
    )
    assert trace.memory_segments()["unused"].sum() == unused
