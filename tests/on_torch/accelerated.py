"""Train on a device, one profile per case: python accelerated.py FOLDER [LIBRARY of the device ``toy``]."""

from __future__ import annotations

import sys
import threading
import types
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import opscope

STEPS = 3


def device_of(library):
    """Return the name of the device: the CPU, or the device of ``accelerator.cpp``."""
    if library is None:
        return "cpu"
    torch.ops.load_library(library)
    torch.utils.rename_privateuse1_backend("toy")
    module = types.ModuleType("torch.toy")
    module.is_available = module.is_initialized = lambda: True
    module._is_in_bad_fork = lambda: False
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module.manual_seed_all = lambda seed: None
    module.get_amp_supported_dtype = lambda: [torch.bfloat16]
    torch._register_device_module("toy", module)
    return "toy"


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self, computed_again):
        super().__init__()
        self.first, self.second, self.head = Block(16), Block(16), nn.Linear(16, 3)
        self.computed_again = computed_again

    def forward(self, x):
        for block in (self.first, self.second):
            if self.computed_again is None:
                x = block(x)
            else:
                x = checkpoint(
                    block, x, use_reentrant=self.computed_again, preserve_rng_state=False
                )
        return self.head(x)


class Probed(torch.autograd.Function):
    """Calls a module in its backward pass."""

    module = None

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            Probed.module(gradient.detach()).sum()
        return gradient


def train(device, case, threads):
    """Train a few steps; add the thread of the backward pass to ``threads``."""
    torch.manual_seed(0)
    again = {"checkpoint": False, "reentrant checkpoint": True}.get(case)
    model = Net(again).to(device)
    Probed.module = nn.Linear(3, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    x = torch.randn(4, 16).to(device)
    x.requires_grad_(case in ("gradient penalty", "reentrant checkpoint"))
    for _ in range(STEPS):
        optimizer.zero_grad()
        y = model(x)
        if case == "module in backward":
            y = Probed.apply(y)
        loss = y.pow(2).mean()
        loss.register_hook(lambda _: threads.add(threading.get_native_id()))
        if case == "gradient penalty":
            (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
            loss = loss + gradient.pow(2).sum()
        loss.backward()
        optimizer.step()


CASES = ("plain", "checkpoint", "reentrant checkpoint", "module in backward", "gradient penalty")


def main():
    folder, library = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
    device = device_of(library)
    opscope.init(["torch"])
    for case in CASES:
        threads = set()
        with opscope.capture(folder / f"{case}.opscope", backend="recorder"):
            train(device, case, threads)
        same = threads == {threading.get_native_id()}
        print(case, "here" if same else "elsewhere")


if __name__ == "__main__":
    main()
