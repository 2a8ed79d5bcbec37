"""What the PyTorch adapter costs: µs per op and step-time ratios, beside a mode that does nothing.

    python benchmarks/torch_adapter.py [seconds per measurement]

All variants run in one process, in turns, and the best turn counts: read the ratios, times depend
on the machine. ``off`` is the adapter installed with nothing listening.
"""

import importlib.util
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import opscope
from opscope.backends.recorder import RecorderCapture
from opscope.core import session

ROUNDS = 5


class Nothing(TorchDispatchMode):
    ops = 0

    @classmethod
    def ignore_compile_internals(cls):
        return True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        Nothing.ops += 1
        return func(*args, **(kwargs or {}))


def tiny_ops():
    x = torch.ones(4)

    def step():
        for _ in range(100):
            torch.add(x, x)

    return step


def training(model, images, labels):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
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


def transformer():
    return training(Transformer(), torch.randn(2, 8, 32), torch.randint(0, 10, (2,)))


def nothing(step):
    return step()


def noop(step):
    with Nothing():
        return step()


def measure(step, around, before, after, seconds):
    """Seconds per step, the least of the turns."""
    before()
    try:
        around(step)
        around(step)
        best = float("inf")
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            around(step)
            best = min(best, time.perf_counter() - start)
        return best
    finally:
        after()


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    torch.set_num_threads(1)
    idle = lambda: None  # noqa: E731

    def record(**options):
        def before():
            opscope.init(["torch"], **options)
            folder = Path(tempfile.mkdtemp())
            session.start(RecorderCapture(folder))

        def after():
            session.stop()
            opscope.shutdown()

        return before, after

    variants = {
        "nothing": (nothing, idle, idle),
        "off": (nothing, lambda: opscope.init(["torch"]), opscope.shutdown),
        "no-op mode": (noop, idle, idle),
        "recording": (nothing, *record()),
        "  without source": (nothing, *record(source=False)),
        "  ops only": (nothing, *record(source=False, layers=False, steps=False)),
    }
    workloads = {"tiny ops": tiny_ops, "LeNet": lenet, "4-block transformer": transformer}
    print(f"{'':32}{'':18}{'µs/step':>10}{'ratio':>8}{'µs/op added':>13}")
    for title, make in workloads.items():
        step = make()
        step()
        Nothing.ops = 0
        noop(step)
        ops = Nothing.ops
        best = dict.fromkeys(variants, float("inf"))
        for _ in range(ROUNDS):
            for name, variant in variants.items():
                best[name] = min(best[name], measure(step, *variant, seconds / ROUNDS))
        base = best["nothing"]
        for name, value in best.items():
            added = (value - base) / ops * 1e6
            head = f"{title} ({ops} ops)" if name == "nothing" else ""
            print(f"{head:32}{name:18}{value * 1e6:10.0f}{value / base:8.2f}{added:13.2f}")


if __name__ == "__main__":
    main()
