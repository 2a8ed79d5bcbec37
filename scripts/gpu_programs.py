"""The programs that gpu_check.sh profiles. Usage: python scripts/gpu_programs.py NAME RESULT.json [device]

Each is a training of a few steps; what it knows of itself goes to RESULT.json, for gpu_results.py to
compare with what opscope saw. ``overhead`` profiles itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

STEPS = 6
#: Of ``overhead``: turns of each variant, and steps that are timed in one.
ROUNDS, TIMED = 3, 20
#: Width, batch, length and blocks: multiples of 64, as Tensor Cores like it; on a CPU, where only the
#: programs themselves are tested, as small as can be.
SIZES = {"cuda": (1024, 16, 256, 4), "cpu": (64, 2, 8, 1)}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (
            one.unflatten(-1, (-1, 64)).transpose(1, 2)
            for one in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, width, blocks):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.head = nn.Linear(width, 64)

    def forward(self, x):
        return self.head(self.blocks(x))


def training(device, **options):
    """A step function of a small transformer's training, and its model and input."""
    torch.manual_seed(0)
    width, batch, length, blocks = SIZES[device]
    model = Model(width, blocks).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, **options)
    x = torch.randn(batch, length, width, device=device)

    def loss_of(run=model):
        return run(x).float().pow(2).mean()

    def step(run=model):
        optimizer.zero_grad()
        loss_of(run).backward()
        optimizer.step()

    return step, model, x


def counted(step):
    """Matrix FLOP of one step, as PyTorch counts them."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


def amp(device):
    """bf16 autocast: every matrix product on Tensor Cores, FLOPs as PyTorch counts them."""
    step, _, _ = training(device)
    # PyTorch's counter knows no fused attention of the CPU
    math, every = torch.nn.attention.SDPBackend.MATH, contextlib.nullcontext

    def mixed():
        with (
            torch.autocast(device, torch.bfloat16),
            torch.nn.attention.sdpa_kernel(math) if device == "cpu" else every(),
        ):
            step()

    flops = counted(mixed)
    for _ in range(STEPS):
        mixed()
    # one more step was counted, and recorded as well
    return {"steps": STEPS + 1, "matrix_flops": flops * (STEPS + 1)}


def compiled(device):
    """torch.compile: one graph, each generated kernel with its ops and lines."""
    step, model, _ = training(device)
    run = torch.compile(model)
    for _ in range(STEPS):
        step(run)
    counters = torch._dynamo.utils.counters
    return {
        "steps": STEPS,
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
    }


def graph(device):
    """A whole training step captured, and a second graph of the same length beside it."""
    step, _, _x = training(device)
    other, _, _ = training(device)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
            other()
    torch.cuda.current_stream().wait_stream(side)
    captured = []
    for one in (step, other):
        made = torch.cuda.CUDAGraph()
        with torch.cuda.graph(made):
            one()
        captured.append(made)
    for _ in range(STEPS):
        for made in captured:
            made.replay()
    torch.cuda.synchronize()
    return {"graphs": len(captured), "replays": STEPS * len(captured), "warm": 6}


def streams(device):
    """Two streams at once, that wait for each other by events."""
    torch.manual_seed(0)
    width, batch, length, _ = SIZES[device]
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    a = torch.randn(batch * length, width, device=device)
    b = torch.randn(width, width, device=device)
    torch.cuda.synchronize()
    for _ in range(STEPS):
        with torch.cuda.stream(first):
            left = a @ b
            ready = first.record_event()
        with torch.cuda.stream(second):
            right = torch.relu(a)
            second.wait_event(ready)
            left.add_(right)
    torch.cuda.synchronize()
    products = 2 * batch * length * width * width
    return {"streams": 2, "matrix_flops": products * STEPS, "steps": 0}


def memory(device):
    """What the allocator itself counts as its peak."""
    step, _, _ = training(device, momentum=0.9)
    for _ in range(STEPS):
        step()
    stats = torch.cuda.memory_stats()
    return {name: stats[f"{name}_bytes.all.{when}"] for name, when in
            (("requested", "peak"), ("reserved", "peak"))} | {
        "in_use": stats["requested_bytes.all.current"]
    }  # fmt: skip


def overhead(device):
    """The step's time by the clock under nothing, opscope, and torch.profiler; the best of turns."""
    import opscope

    step, _, _ = training(device)

    def timed():
        count = TIMED
        for _ in range(3):
            step()
        wait()
        begin = time.perf_counter()
        for _ in range(count):
            step()
        wait()
        return (time.perf_counter() - begin) / count

    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    def ours(backend, **options):
        folder = tempfile.mkdtemp()
        opscope.init(["torch"], **options)
        try:
            with opscope.capture(Path(folder, "run.opscope"), backend=backend):
                return timed()
        finally:
            opscope.shutdown()
            shutil.rmtree(folder)

    def theirs(**options):
        from torch.profiler import ProfilerActivity, profile

        wanted = [ProfilerActivity.CPU]
        if device == "cuda":
            wanted.append(ProfilerActivity.CUDA)
        with profile(activities=wanted, **options):
            return timed()

    full = "kineto" if device == "cuda" else "recorder"
    variants = {
        "nothing": timed,
        "opscope, ranges": lambda: ours("recorder"),
        "opscope, ranges and kernels": lambda: ours(full),
        "opscope, and memory": lambda: ours(full, memory=True),
        "torch.profiler": theirs,
        "torch.profiler, shapes": lambda: theirs(record_shapes=True),
        "torch.profiler, shapes, stacks": lambda: theirs(record_shapes=True, with_stack=True),
    }
    found = {name: [] for name in variants}
    for _ in range(ROUNDS):
        for name, run in variants.items():
            found[name].append(run())
    base = min(found["nothing"])
    return {
        "step_ms": {name: min(times) * 1e3 for name, times in found.items()},
        "ratio": {name: min(times) / base for name, times in found.items()},
        "spread": {name: statistics.pstdev(times) / min(times) for name, times in found.items()},
    }


PROGRAMS = {
    one.__name__: one for one in (amp, compiled, graph, streams, memory, overhead)
}  # fmt: skip


def main():
    name, result = sys.argv[1:3]
    device = sys.argv[3] if len(sys.argv) > 3 else "cuda"
    found = {
        "program": name,
        "device": device,
        "torch": torch.__version__,
        **PROGRAMS[name](device),
    }
    temporary = f"{result}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
    os.replace(temporary, result)


if __name__ == "__main__":
    main()
