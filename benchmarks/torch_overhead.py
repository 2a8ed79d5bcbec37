"""Measure the cost of observing PyTorch: µs per op and step-time ratios, of opscope and of Kineto.

    python benchmarks/torch_overhead.py [seconds per turn] [--only=PROGRAM] [--variants=ONE;ANOTHER]
                                        [--processes=3] [--rounds=8] [--memory=returned]
                                        [--json]

Four programs run with nothing and under these variants: opscope installed without a listener, opscope native
(with one level of each nest, and with all), opscope in dispatch mode (complete, without source lines, and ops
alone), an empty dispatch mode, ``emit_nvtx(record_shapes=True)`` if CUDA is there (it raises elsewhere),
Kineto with shapes, and Kineto with shapes and stacks. Each variant has its own processes, because leftovers
of a variant slow those after it; there it takes turns with "nothing". A turn counts with the 10th percentile of
its steps' CPU times, so that other programs on the machine change little. What a variant adds, and its ratio,
are relative to the mean of the turns with "nothing" before and after it; printed are the median of all rounds
and its standard error. Read the ratios.

The processes keep the memory that they free (glibc's ``MALLOC_*``). By default ResNet-18 returns memory and
faults in 4,600 pages in each step, as many with opscope as without, and the cost of a page changes by the
minute, by more than the measured differences. ``--memory=returned`` keeps glibc's default.

"To disk" is the time from the end of the last step until the profile, or Kineto's file, is complete.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

import opscope
from opscope.core.schema import DIRECTIONS

ROUNDS = 8
PROCESSES = 3
#: No separate mapping for a block below 32 MiB (glibc's limit), and no memory returned to the system.
KEPT = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
VARIANTS = (
    "off",
    "native",
    "native, all levels",
    "dispatch",
    "dispatch, no source",
    "dispatch, ops only",
    "a mode, empty",
    *(["emit_nvtx, shapes"] if torch.cuda.is_available() else []),
    "Kineto, shapes",
    "Kineto, shapes, stacks",
)


class Nothing(TorchDispatchMode):
    """An empty dispatch mode, for PyTorch's own cost of calling a mode."""

    @classmethod
    def ignore_compile_internals(cls):
        return True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def tiny_ops():
    x = torch.ones(4)

    def step():
        for _ in range(1000):
            torch.add(x, x)

    return step


def training(model, *inputs):
    *inputs, labels = inputs
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(*inputs), labels).backward()
        optimizer.step()

    return step


def lenet():
    path = Path(__file__).resolve().parents[1] / "examples" / "torch_lenet.py"
    spec = importlib.util.spec_from_file_location("torch_lenet", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return training(module.LeNet(), torch.randn(32, 1, 28, 28), torch.randint(0, 10, (32,)))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(
            *(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(4))
        )
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.blocks(x).mean(1))


class Block(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outer)
        self.short = nn.Identity()
        if stride != 1 or inner != outer:
            conv = nn.Conv2d(inner, outer, 1, stride, bias=False)
            self.short = nn.Sequential(conv, nn.BatchNorm2d(outer))

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.short(x))


def resnet18():
    widths = ((64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1))
    widths += ((256, 512, 2), (512, 512, 1))
    model = nn.Sequential(
        *(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()),
        nn.MaxPool2d(3, 2, 1),
        *(Block(*width) for width in widths),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)),
    )
    return training(model, torch.randn(4, 3, 64, 64), torch.randint(0, 10, (4,)))


PROGRAMS = {
    "tiny op": tiny_ops,
    "LeNet": lenet,
    "transformer, 4 blocks": lambda: training(
        Transformer(), torch.randn(2, 8, 32), torch.randint(0, 10, (2,))
    ),
    "ResNet-18": resnet18,
}


def usual(step, seconds):
    """Return the 10th percentile of the CPU time of a step, in ns."""
    took = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.process_time_ns()
        step()
        took.append(time.process_time_ns() - begin)
    return sorted(took)[len(took) // 10]


def opscope_variant(step, seconds, mode, levels="one", **options):
    os.environ["OPSCOPE_TORCH_OPS"], os.environ["OPSCOPE_TORCH_LEVELS"] = mode, levels
    folder = Path(tempfile.mkdtemp())
    opscope.init(frameworks="torch", **options)
    with opscope.capture(folder / "run.opscope", backend="recorder"):
        step()
        took = usual(step, seconds)
        begin = time.perf_counter()
    stopped = time.perf_counter() - begin
    opscope.shutdown()
    category = opscope.load(folder / "run.opscope").trace["ranges"]["category"]
    events = int(category.cast(str).is_in(DIRECTIONS).sum())
    shutil.rmtree(folder)
    return took, stopped, events


def kineto(step, seconds, stacks):
    options = {"record_shapes": True, "with_stack": stacks}
    with profile(activities=[ProfilerActivity.CPU], **options):
        step()
    done = profile(activities=[ProfilerActivity.CPU], **options)
    done.start()
    # Kineto keeps all events in memory: a short turn, so that stopping does not take too long
    took = usual(step, min(seconds, 1.0))
    begin = time.perf_counter()
    done.stop()
    path = Path(tempfile.mkdtemp()) / "trace.json"
    done.export_chrome_trace(str(path))
    stopped = time.perf_counter() - begin
    events = path.read_text().count('"cpu_op"')
    shutil.rmtree(path.parent)
    return took, stopped, events


def measure(variant, step, seconds):
    """Return CPU ns of a step, seconds to disk, and the number of events."""
    if variant == "nothing":
        return usual(step, seconds), None, 0
    if variant == "off":
        opscope.init(frameworks="torch")
        took = usual(step, seconds)
        opscope.shutdown()
        return took, None, 0
    if variant.startswith("native"):
        return opscope_variant(step, seconds, "native", "all" if "all" in variant else "one")
    if variant.startswith("dispatch"):
        only = {"layers": False, "steps": False, "source": False}
        options = only if "only" in variant else {"source": "no source" not in variant}
        return opscope_variant(step, seconds, "dispatch", **options)
    if variant == "a mode, empty":
        with Nothing():
            return usual(step, seconds), None, 0
    if variant.startswith("emit_nvtx"):
        with torch.autograd.profiler.emit_nvtx(record_shapes=True):
            return usual(step, seconds), None, 0
    return kineto(step, seconds, "stacks" in variant)


def ops_in_a_step(step):
    """Return the number of ops that PyTorch itself reports; every variant observes at least these."""
    with profile(activities=[ProfilerActivity.CPU]) as done:
        step()
    return sum(1 for event in done.events() if event.name.startswith("aten::"))


def turns(program, variant, seconds, rounds):
    """Run rounds of "nothing" and ``variant`` in turns, in this process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    step = PROGRAMS[program]()
    for _ in range(5):
        step()
    measure("nothing", step, seconds)  # the first round warms up
    measure(variant, step, seconds)
    base, _, _ = measure("nothing", step, seconds)
    pairs = []
    for _ in range(rounds):
        took, stopped, events = measure(variant, step, seconds)
        after, _, _ = measure("nothing", step, seconds)
        pairs.append(((base + after) / 2, took))
        base = after
    ops = ops_in_a_step(step)
    return {"ops": ops, "pairs": pairs, "events": events, "to_disk_s": stopped}


def processes(program, variant, seconds, rounds, count, kept):
    """Run ``turns`` in ``count`` separate processes and combine the results."""
    runs = []
    environment = {**os.environ, **(KEPT if kept else {})}
    for _ in range(count):
        command = [sys.executable, __file__, str(seconds), f"--rounds={rounds}"]
        command.append(f"--turns={program}/{variant}")
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            sys.exit(f"{program}, {variant}: {done.stderr[-2000:]}")
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    pairs = [pair for run in runs for pair in run["pairs"]]
    added = [(took - base) / runs[0]["ops"] / 1e3 for base, took in pairs]
    return {
        "program": program,
        "variant": variant,
        "nothing_us": statistics.median(base for base, _ in pairs) / 1e3,
        "ops": runs[0]["ops"],
        "us_per_op": statistics.median(added),
        "error": error_of_median(added),
        "ratio": statistics.median(took / base for base, took in pairs),
        "events": runs[-1]["events"],
        "to_disk_s": runs[-1]["to_disk_s"],
    }


def error_of_median(values):
    """Return the standard error of the median by bootstrap (300 resamples)."""
    draw = random.Random(0)
    return statistics.stdev(
        statistics.median(draw.choices(values, k=len(values))) for _ in range(300)
    )


def main():
    seconds = next((float(one) for one in sys.argv[1:] if one[0].isdigit()), 1.0)
    options = dict(one[2:].split("=", 1) for one in sys.argv[1:] if one[:2] == "--" and "=" in one)
    rounds = int(options.get("rounds", ROUNDS))
    if "turns" in options:
        json.dump(turns(*options["turns"].split("/"), seconds, rounds), sys.stdout)
        return
    variants = options["variants"].split(";") if "variants" in options else VARIANTS
    rows = []
    for program in PROGRAMS:
        if options.get("only", "").lower() not in program.lower():
            continue
        for variant in variants:
            count = int(options.get("processes", PROCESSES))
            kept = options.get("memory") != "returned"
            rows.append(processes(program, variant, seconds, rounds, count, kept))
    if "--json" in sys.argv:
        print(json.dumps(rows, indent=2))
        return
    print(
        f"{'program':<22}{'variant':<25}{'nothing µs':>11}{'+µs/op':>8}{'±':>6}{'ratio':>7}", end=""
    )
    print(f"{'events':>9}{'to disk s':>11}{'µs/event':>10}")
    for row in rows:
        stopped, events = row["to_disk_s"], row["events"]
        print(f"{row['program']:<22}{row['variant']:<25}{row['nothing_us']:>11.1f}", end="")
        print(f"{row['us_per_op']:>8.2f}{row['error']:>6.2f}{row['ratio']:>7.3f}", end="")
        if stopped is not None:
            print(f"{events:>9}{stopped:>11.3f}{stopped / max(events, 1) * 1e6:>10.2f}", end="")
        print()


if __name__ == "__main__":
    main()
