"""A compiled function of PyTorch that gets another shape in each call: STEPS."""

import sys

import torch
from torch import nn


def main():
    net = torch.compile(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)), dynamic=False,
                        backend="aot_eager")  # fmt: skip
    with torch.no_grad():
        for step in range(int(sys.argv[1])):
            net(torch.randn(16 + step, 64))


if __name__ == "__main__":
    main()
