"""Trainings of PyTorch whose model or loop does more than it needs: CAUSE STEPS."""

import sys

import torch
from torch import nn


class Attention(nn.Module):
    """Attention as two products with a softmax between, or as one op."""

    def __init__(self, fused, width=128, heads=4):
        super().__init__()
        self.fused, self.heads = fused, heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if self.fused:
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / (d // self.heads) ** 0.5
            mask = torch.ones(t, t, dtype=torch.bool).triu(1)
            y = scores.masked_fill(mask, float("-inf")).softmax(-1) @ v
        return x + self.out(y.transpose(1, 2).reshape(b, t, d))


def attention(steps, fused=False):
    net = nn.Sequential(*[Attention(fused) for _ in range(3)])
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    x = torch.randn(4, 256, 128)
    for _ in range(steps):
        optimizer.zero_grad()
        net(x).pow(2).mean().backward()
        optimizer.step()


def fused(steps):
    attention(steps, fused=True)


def casts(steps):
    net = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)])
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    x = torch.randn(256, 512)
    for _ in range(steps):
        h = x
        for layer in net:
            for _ in range(16):
                h = h.double().float()  # for nothing
            h = layer(h)
        optimizer.zero_grad()
        h.pow(2).mean().backward()
        optimizer.step()


def memory(steps):
    net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    outputs = []
    for _ in range(steps):
        x = torch.randn(2048, 256)
        optimizer.zero_grad()
        net(x).pow(2).mean().backward()
        optimizer.step()
        outputs.append(net(x))  # keeps the graph of each step
    print(len(outputs))


def evaluation(steps):
    net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(steps):
        net.train()
        x, y = torch.randn(128, 256), torch.randint(0, 10, (128,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        if step % 4 == 3:
            net.eval()
            with torch.no_grad():
                for _ in range(60):
                    net(torch.randn(512, 256)).argmax(-1)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    cause, steps = sys.argv[1], int(sys.argv[2])
    {one.__name__: one for one in (attention, fused, casts, memory, evaluation)}[cause](steps)


if __name__ == "__main__":
    main()
