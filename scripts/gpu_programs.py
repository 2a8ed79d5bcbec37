"""The programs that gpu_check.sh profiles.

Usage: python scripts/gpu_programs.py NAME RESULT.json [--device cpu] [--profile TRACE.json.gz]

Each program trains for a few steps and writes its own figures to RESULT.json, which gpu_results.py compares
with opscope's. ``--profile`` runs it under plain torch.profiler, for the same purpose. ``overhead`` profiles
itself. The programs with streams, CUDA graphs and processes are in gpu_programs_cuda.py.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
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

#: The number of steps of most programs, and of ``long``, in which opscope chooses a window.
STEPS, LONG = 6, 80
#: In ``overhead``: the rounds of each variant, and the timed steps of a round.
ROUNDS, TIMED = 3, 20
#: Width, batch, length and blocks: a width that suits Tensor Cores; as small as possible on a CPU, where only
#: the programs themselves are tested.
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
    """Return the step function of a small transformer's training, its model and its input."""
    torch.manual_seed(0)
    width, batch, length, blocks = SIZES[device]
    model = Model(width, blocks).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, **options)
    x = torch.randn(batch, length, width, device=device)

    def loss_of(run=model):
        return run(x).float().pow(2).mean()

    def step(run=model):
        optimizer.zero_grad()
        loss = loss_of(run)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, model, x


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def repeated(step, device, count=STEPS):
    """Run ``step`` ``count`` times; return the mean time of a step (ms, without the first two)."""
    begin = 0.0
    for number in range(count):
        if number == 2:
            wait(device)
            begin = time.perf_counter()
        last = step()
    wait(device)
    timed = {"step_ms": (time.perf_counter() - begin) / (count - 2) * 1e3} if count > 2 else {}
    return {"steps": count, "loss": None if last is None else float(last), **timed}


def counted(step):
    """Return the matrix FLOP of one step by PyTorch's count."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


def eager(device):
    """Plain float32; the other programs are variations of this one."""
    step, _, _ = training(device)
    return repeated(step, device)


def long(device):
    """So many steps that opscope records only a window that it chooses."""
    step, _, _ = training(device)
    return repeated(step, device, LONG)


def scaler(device):
    """float16 with scaled gradients: if they overflow, GradScaler skips the optimizer's step."""
    model, x = training(device)[1:]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    scaling = torch.amp.GradScaler(device, init_scale=2.0**10)
    overflows, stepped = {2, 3}, []
    optimizer.register_step_post_hook(lambda *_: stepped.append(1))

    def one(number):
        optimizer.zero_grad()
        with torch.autocast(device, torch.float16 if device == "cuda" else torch.bfloat16):
            loss = model(x).float().pow(2).mean()
        scaling.scale(loss * (float("inf") if number in overflows else 1.0)).backward()
        scaling.step(optimizer)
        scaling.update()

    for number in range(STEPS):
        one(number)
    return {"steps": STEPS, "optimizer_steps": len(stepped), "skipped": len(overflows)}


def loader(device):
    """Batches from two workers, pinned in a thread, copied asynchronously."""
    from torch.utils.data import DataLoader, TensorDataset

    model, x = training(device)[1:]
    data = TensorDataset(torch.randn(STEPS * len(x), *x.shape[1:]))
    batches = DataLoader(data, len(x), num_workers=2, pin_memory=device == "cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for (batch,) in batches:
        optimizer.zero_grad()
        model(batch.to(device, non_blocking=True)).float().pow(2).mean().backward()
        optimizer.step()
    wait(device)
    return {"steps": STEPS, "copied_bytes": STEPS * x.numel() * x.element_size()}


def amp(device):
    """bf16 autocast: every matrix product on Tensor Cores, with FLOPs by PyTorch's count."""
    step, _, _ = training(device)
    # PyTorch's counter does not know the CPU's fused attention
    math, every = torch.nn.attention.SDPBackend.MATH, contextlib.nullcontext

    def mixed():
        with (
            torch.autocast(device, torch.bfloat16),
            torch.nn.attention.sdpa_kernel(math) if device == "cpu" else every(),
        ):
            return step()

    flops = counted(mixed)
    found = repeated(mixed, device)
    # the counted step is recorded too
    return found | {"steps": STEPS + 1, "matrix_flops": flops * (STEPS + 1)}


def compiled(device):
    """torch.compile: one FX graph; each generated kernel has its ops and lines."""
    step, model, _ = training(device)
    run = torch.compile(model)
    found = repeated(lambda: step(run), device)
    counters = torch._dynamo.utils.counters
    return found | {
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
    }


def memory(device):
    """Training with momentum; the allocator's own peaks are the reference."""
    step, _, _ = training(device, momentum=0.9)
    found = repeated(step, device)
    stats = torch.cuda.memory_stats()
    return found | {name: stats[f"{name}_bytes.all.{when}"] for name, when in
            (("requested", "peak"), ("reserved", "peak"))} | {
        "in_use": stats["requested_bytes.all.current"]
    }  # fmt: skip


def overhead(device):
    """The wall time of a step alone, under opscope, and under torch.profiler; the best of the rounds."""
    import opscope

    step, _, _ = training(device)

    def timed():
        count = TIMED
        for _ in range(3):
            step()
        wait(device)
        begin = time.perf_counter()
        for _ in range(count):
            step()
        wait(device)
        return (time.perf_counter() - begin) / count

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


def profiled(name, device, trace):
    """Run ``PROGRAMS[name]`` under torch.profiler alone, write its trace to ``trace``, return its result."""
    from torch.profiler import ProfilerActivity, profile

    wanted = [ProfilerActivity.CPU]
    if device == "cuda":
        wanted.append(ProfilerActivity.CUDA)
    with profile(activities=wanted) as profiler:
        found = PROGRAMS[name](device)
        wait(device)
    profiler.export_chrome_trace(trace)
    return found


PROGRAMS = {
    one.__name__: one
    for one in (eager, amp, memory, long, compiled, scaler, loader, overhead)
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("result")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--profile", metavar="TRACE")
    options = parser.parse_args()
    limit = os.environ.get("GPU_CHECK_SECONDS")
    if limit:  # a hanging program prints its stack before it is killed
        faulthandler.dump_traceback_later(max(1.0, float(limit) - 5), exit=False)
    import gpu_programs_cores
    import gpu_programs_cuda

    for more in (gpu_programs_cuda, gpu_programs_cores):
        PROGRAMS.update(more.programs(sys.modules[__name__]))
    if options.profile is None:
        found = PROGRAMS[options.name](options.device)
    else:
        found = profiled(options.name, options.device, options.profile)
    about = {
        "program": options.name,
        "device": options.device,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "name": torch.cuda.get_device_name() if torch.cuda.is_initialized() else None,
    }
    temporary = f"{options.result}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(about | found, file, indent=1)
    os.replace(temporary, options.result)


if __name__ == "__main__":
    main()
