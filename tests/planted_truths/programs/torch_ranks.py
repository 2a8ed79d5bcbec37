"""Two ranks of PyTorch over gloo, of which the second sleeps before each step: STEPS."""

import sys
import time

import torch
import torch.distributed as dist
from clock import entered
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel


def reduce(state, bucket):
    """Reduce the gradients as ever, and note when."""
    entered()
    return allreduce_hook(state, bucket)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    net = DistributedDataParallel(
        nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
    )
    net.register_comm_hook(None, reduce)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for _ in range(int(sys.argv[1])):
        x = torch.randn(64, 256)
        if dist.get_rank() == 1:
            time.sleep(0.15)
        optimizer.zero_grad()
        (net(x) - x).pow(2).mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
