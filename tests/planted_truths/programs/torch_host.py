"""Trainings of PyTorch whose host does what it should not; or what it should: CAUSE STEPS."""

import sys
import time

import torch
from clock import asleep, clocked
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    """Samples that sleep, or that compute in Python."""

    def __init__(self, count, asleep, loops):
        self.count, self.asleep, self.loops = count, asleep, loops

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(self.asleep)
        total = 0
        for number in range(self.loops):
            total += number * index % 7
        return torch.full((64,), float(total % 5)), index % 10


class Slow(nn.Module):
    """Sleeps forward and, longer, backward."""

    def forward(self, x):
        time.sleep(0.03)
        return Asleep.apply(x)


class Asleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.05)
        return gradient.clone()


def train(net, optimizer, x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()


def loader(steps, asleep, loops):
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    batches = iter(DataLoader(Samples(4 * steps, asleep, loops), batch_size=4))
    for _ in range(steps):
        with clocked("input"):
            x, y = next(batches)
        train(net, optimizer, x, y)


def reads(steps):
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    right = 0
    for _ in range(steps):
        x, y = torch.randn(400, 64), torch.randint(0, 10, (400,))
        optimizer.zero_grad()
        out = net(x)
        nn.functional.cross_entropy(out, y).backward()
        optimizer.step()
        for row in range(len(out)):
            right += out[row].argmax().item() == y[row].item()
    print(right)


def tiny(steps):
    weight = torch.ones(32, requires_grad=True)
    optimizer = torch.optim.SGD([weight], 0.1)
    for _ in range(steps):
        value = torch.zeros(32)
        for _ in range(150):
            value = torch.sin(value * weight + 0.1)
        optimizer.zero_grad()
        value.sum().backward()
        optimizer.step()


def sleeping(steps):
    net = nn.Sequential(nn.Linear(64, 64), Slow(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    optimizer.register_step_pre_hook(lambda *_: time.sleep(0.02))
    x, y = torch.randn(32, 64), torch.randint(0, 10, (32,))
    for _ in range(steps):
        with clocked("optimizer"):
            optimizer.zero_grad()
        with clocked("forward"):
            loss = nn.functional.cross_entropy(net(x), y)
        with clocked("backward"):
            loss.backward()
        asleep("outside", 0.1)  # as a log of gradients does
        with clocked("optimizer"):
            optimizer.step()


def healthy(steps):
    net = nn.Sequential(
        nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    x, y = torch.randn(256, 1024), torch.randint(0, 10, (256,))
    for _ in range(steps):
        train(net, optimizer, x, y)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    cause, steps = sys.argv[1], int(sys.argv[2])
    programs = {"sleep": lambda: loader(steps, 0.015, 0), "cpu": lambda: loader(steps, 0, 200_000)}
    programs |= {
        one.__name__: lambda one=one: one(steps) for one in (reads, tiny, sleeping, healthy)
    }
    programs[cause]()


if __name__ == "__main__":
    main()
