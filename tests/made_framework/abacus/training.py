"""Layers and an optimizer."""

from abacus import engine


class Layer:
    """What it computes is in ``forward``; layers may call layers."""

    def __init__(self, name):
        self.name = name

    def __call__(self, *inputs):
        return self.forward(*inputs)

    def forward(self, *inputs):
        raise NotImplementedError


class Optimizer:
    """Adds to its weights what it is given."""

    def __init__(self, weights):
        self.weights = weights

    def step(self, change):
        self.weights = engine.add(self.weights, change)
