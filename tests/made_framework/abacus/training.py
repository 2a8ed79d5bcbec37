"""Layers and an optimizer."""

from abacus import engine


class Layer:
    """A layer computes in ``forward``; layers may call layers."""

    def __init__(self, name):
        self.name = name

    def __call__(self, *inputs):
        return self.forward(*inputs)

    def forward(self, *inputs):
        raise NotImplementedError


class Optimizer:
    """Adds a given change to its weights."""

    def __init__(self, weights):
        self.weights = weights

    def step(self, change):
        self.weights = engine.add(self.weights, change)
