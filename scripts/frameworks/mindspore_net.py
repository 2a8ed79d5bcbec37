"""The model of docs/frameworks.md in MindSpore, in PyNative mode; with NET_MODE=graph in graph mode."""

import os

import mindspore as ms
import numpy as np
from mindspore import nn


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, pad_mode="valid", has_bias=True)
        self.act = nn.ReLU()
        self.flatten = nn.Flatten()
        self.fc = nn.Dense(8 * 14 * 14, 10)

    def construct(self, x):
        x = self.conv(x)  # conv
        x = self.act(x)  # act
        return self.fc(self.flatten(x))  # fc


def train(steps):
    graph = os.environ.get("NET_MODE") == "graph"
    ms.set_context(mode=ms.GRAPH_MODE if graph else ms.PYNATIVE_MODE)
    net, loss = Net(), nn.MSELoss()
    optimizer = nn.SGD(net.trainable_params(), 0.01)
    images = ms.Tensor(np.ones((8, 3, 16, 16), np.float32))
    targets = ms.Tensor(np.ones((8, 10), np.float32))
    step = nn.TrainOneStepCell(nn.WithLossCell(net, loss), optimizer)
    for _ in range(steps):
        step(images, targets)
