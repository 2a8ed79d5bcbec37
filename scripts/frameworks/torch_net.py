"""The model of docs/frameworks.md in PyTorch."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.act = nn.ReLU()
        self.fc = nn.Linear(8 * 14 * 14, 10)

    def forward(self, x):
        x = self.conv(x)  # conv
        x = self.act(x)  # act
        return self.fc(torch.flatten(x, 1))  # fc


def train(steps):
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    images, targets = torch.ones(8, 3, 16, 16), torch.ones(8, 10)
    for _ in range(steps):
        loss = nn.functional.mse_loss(net(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
