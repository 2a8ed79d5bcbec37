"""Models that the tests train: LeNet, a residual CNN, a transformer, each with its data."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


class LeNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2, 2)
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(16 * 4 * 4, 120)
        self.fc2 = nn.Dense(120, 84)
        self.fc3 = nn.Dense(84, 10)

    def construct(self, x):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x)))
        x = self.flatten(x)
        return self.fc3(self.relu(self.fc2(self.relu(self.fc1(x)))))


class Residual(nn.Cell):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, pad_mode="same", has_bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.act = nn.ReLU()

    def construct(self, x):
        return self.act(self.norm(self.conv(x)) + x)


class ResNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, pad_mode="pad", padding=1, has_bias=True)
        self.blocks = nn.CellList([Residual(8), Residual(8)])
        self.pool = nn.AvgPool2d(2, 2)
        self.flatten = nn.Flatten()
        self.head = nn.Dense(8 * 4 * 4, 10)

    def construct(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.flatten(self.pool(x)))


class Attention(nn.Cell):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query = nn.Dense(width, width)
        self.key = nn.Dense(width, width)
        self.value = nn.Dense(width, width)
        self.out = nn.Dense(width, width)

    def construct(self, x):
        batch, length, width = x.shape
        shape = (batch, length, self.heads, self.size)
        query = self.query(x).reshape(shape).transpose((0, 2, 1, 3))
        key = self.key(x).reshape(shape).transpose((0, 2, 3, 1))
        value = self.value(x).reshape(shape).transpose((0, 2, 1, 3))
        weights = ops.softmax(ops.matmul(query, key) / self.size**0.5, -1)
        mixed = ops.matmul(weights, value).transpose((0, 2, 1, 3)).reshape((batch, length, width))
        return self.out(mixed)


class Block(nn.Cell):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm((width,)), nn.LayerNorm((width,))
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Dense(width, 4 * width), nn.Dense(4 * width, width)
        self.act = nn.GELU()

    def construct(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(self.act(self.up(self.norm2(x))))


class Transformer(nn.Cell):
    def __init__(self, words=17, width=16, heads=2, depth=2, length=6):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.position = Parameter(Tensor(np.zeros((1, length, width)), ms.float32), name="position")
        self.blocks = nn.CellList([Block(width, heads) for _ in range(depth)])
        self.head = nn.Dense(width, words)

    def construct(self, x):
        x = self.embedding(x) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def data(kind, seed=0):
    """Return inputs and targets for a model's class."""
    numbers = np.random.default_rng(seed)
    if kind is Transformer:
        words = numbers.integers(0, 17, (3, 6)).astype(np.int32)
        return Tensor(words), Tensor(np.roll(words, 1, 1).reshape(-1))
    shape = (4, 1, 28, 28) if kind is LeNet else (4, 3, 16, 16)
    images = numbers.standard_normal(shape).astype(np.float32)
    return Tensor(images), Tensor(numbers.integers(0, 10, 4).astype(np.int32))


def made(kind, seed=3):
    """Return a model of ``kind`` whose weights depend on the seed alone."""
    net = kind()
    numbers = np.random.default_rng(seed)
    for one in net.get_parameters():
        if one.dtype == ms.float32 and one.requires_grad:
            one.set_data(Tensor((numbers.standard_normal(one.shape) * 0.1).astype(np.float32)))
    return net.set_train()


OPTIMIZERS = {
    "SGD": lambda weights: nn.SGD(weights, 0.05),
    "Momentum": lambda weights: nn.Momentum(weights, 0.05, 0.9),
    "Adam": lambda weights: nn.Adam(weights, 0.01),
    "AdamW": lambda weights: nn.AdamWeightDecay(weights, 0.01),
}


def trained(kind, steps=3, optimizer="Momentum", net=None):
    """Train a model of ``kind`` by ``value_and_grad``; return its losses and its weights as bytes."""
    net = net or made(kind)
    x, y = data(kind)
    loss = nn.CrossEntropyLoss()
    update = OPTIMIZERS[optimizer](net.trainable_params())

    def forward(x, y):
        out = net(x)
        return loss(out.reshape((-1, out.shape[-1])), y)

    step = ms.value_and_grad(forward, None, update.parameters)
    losses = []
    for _ in range(steps):
        value, gradients = step(x, y)
        update(gradients)
        losses.append(float(value.asnumpy()))
    return losses, {one.name: one.asnumpy().tobytes() for one in net.get_parameters()}


def trained_by_cell(kind, steps=3, optimizer="Momentum"):
    """Train by ``TrainOneStepCell``, in the mode that is set; return what ``trained`` returns."""
    net = made(kind)
    x, y = data(kind)
    update = OPTIMIZERS[optimizer](net.trainable_params())
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), update).set_train()
    losses = [float(step(x, y).asnumpy()) for _ in range(steps)]
    return losses, {one.name: one.asnumpy().tobytes() for one in net.get_parameters()}
