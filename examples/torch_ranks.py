"""Trains a small network on as many ranks as torchrun starts (alone: on one), by DistributedDataParallel with gloo."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(64, 256)
        self.down = nn.Linear(256, 10)

    def forward(self, x):
        return self.down(self.up(x).relu())


def main(steps=5):
    alone = {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group("gloo", **({} if "RANK" in os.environ else alone))
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(torch.randn(32, 64)), torch.randint(10, (32,)))
        loss.backward()
        optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if dist.get_rank() == 0:
        print(f"loss {mean.item() / dist.get_world_size():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
