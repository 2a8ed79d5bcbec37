"""LeNet and a small transformer as training steps, and what their convolutions and products cost by hand."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import nn, ops

WIDTH, HEADS, LENGTH, BATCH, WORDS, DEPTH = 16, 2, 6, 3, 19, 2


class LeNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 6, 5, pad_mode="valid")
        self.c2 = nn.Conv2d(6, 16, 5, pad_mode="same", stride=2)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2, 2)
        self.flat = nn.Flatten()
        self.f1 = nn.Dense(16 * 3 * 3, 20)
        self.f2 = nn.Dense(20, 10)

    def construct(self, x):
        x = self.pool(self.relu(self.c1(x)))
        x = self.pool(self.relu(self.c2(x)))
        return self.f2(self.relu(self.f1(self.flat(x))))


class Attention(nn.Cell):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Dense(WIDTH, 3 * WIDTH)
        self.out = nn.Dense(WIDTH, WIDTH)
        self.softmax = nn.Softmax(axis=-1)
        self.scores = ops.BatchMatMul(transpose_b=True)
        self.mixed = ops.BatchMatMul()

    def construct(self, x):
        batch, length, width = x.shape
        shape = (batch, length, HEADS, width // HEADS)
        q, k, v = ops.split(self.qkv(x), width, -1)
        q = q.reshape(shape).transpose(0, 2, 1, 3)
        k = k.reshape(shape).transpose(0, 2, 1, 3)
        v = v.reshape(shape).transpose(0, 2, 1, 3)
        weights = self.softmax(self.scores(q, k) * (width // HEADS) ** -0.5)
        mixed = self.mixed(weights, v).transpose(0, 2, 1, 3).reshape(batch, length, width)
        return self.out(mixed)


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm((WIDTH,)), nn.LayerNorm((WIDTH,))
        self.attention = Attention()
        self.up, self.down = nn.Dense(WIDTH, 4 * WIDTH), nn.Dense(4 * WIDTH, WIDTH)
        self.act = nn.GELU()

    def construct(self, x):
        x = x + self.attention(self.n1(x))
        return x + self.down(self.act(self.up(self.n2(x))))


class Transformer(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.SequentialCell(*(Block() for _ in range(DEPTH)))
        self.head = nn.Dense(WIDTH, WORDS)

    def construct(self, x):
        return self.head(self.blocks(self.embedding(x))).reshape(-1, WORDS)


def made(kind, graph):
    """Return a training step, its model and its data, the same at each call."""
    ms.set_context(mode=ms.GRAPH_MODE if graph else ms.PYNATIVE_MODE)
    numbers = np.random.default_rng(0)
    net = kind()
    for one in net.get_parameters():
        one.set_data(ms.Tensor((numbers.standard_normal(one.shape) * 0.1).astype(np.float32)))
    if kind is LeNet:
        x = numbers.standard_normal((4, 1, 28, 28)).astype(np.float32)
        y = numbers.integers(0, 10, 4)
        optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    else:
        x = numbers.integers(0, WORDS, (BATCH, LENGTH)).astype(np.int32)
        y = numbers.integers(0, WORDS, BATCH * LENGTH)
        optimizer = nn.Adam(net.trainable_params(), 0.01)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    step = nn.TrainOneStepCell(nn.WithLossCell(net, loss), optimizer).set_train()
    return step, net, (ms.Tensor(x), ms.Tensor(y.astype(np.int32)))


def trained(step, data, steps):
    """Run steps; return the losses as bytes."""
    return [step(*data).asnumpy().tobytes() for _ in range(steps)]


def weights(net):
    """Return the weights as bytes."""
    return {one.name: one.asnumpy().tobytes() for one in net.get_parameters()}


def multiply_adds(kind):
    """Return (forward, backward) multiply-adds of a step's convolutions and products, counted one by one."""
    if kind is LeNet:
        # (images, rows, columns, channels out), weights of each output; the first needs no input gradient
        layers = [((4, 24, 24, 6), 1 * 5 * 5, 1), ((4, 6, 6, 16), 6 * 5 * 5, 2)]
        layers += [((4, 20), 16 * 3 * 3, 2), ((4, 10), 20, 2)]
    else:
        rows = BATCH * LENGTH
        dense = [(WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)] * DEPTH
        dense.append((WIDTH, WORDS))
        layers = [((rows, out), inner, 2) for inner, out in dense]
        heads = (BATCH, HEADS, LENGTH)
        layers += [
            ((*heads, LENGTH), WIDTH // HEADS, 2),
            ((*heads, WIDTH // HEADS), LENGTH, 2),
        ] * DEPTH
    forward = [sum(inner for _ in np.ndindex(*out)) for out, inner, _ in layers]
    return sum(forward), sum(one * layer[2] for one, layer in zip(forward, layers, strict=True))
