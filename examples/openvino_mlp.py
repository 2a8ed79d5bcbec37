"""A small network in OpenVINO, run on batches of several sizes.

opscope run -- python examples/openvino_mlp.py
"""

from __future__ import annotations

import numpy as np
import openvino
from openvino import opset13 as ops

import opscope

SIZES = (256, 512, 10)


def network() -> openvino.Model:
    """Two products, an activation, a softmax; the batch's size is left open."""
    x = ops.parameter([-1, SIZES[0]], np.float32, name="x")
    random = np.random.default_rng(0)
    first, second = (
        ops.constant(random.random(shape, dtype=np.float32)) for shape in (SIZES[:2], SIZES[1:])
    )
    hidden = ops.relu(ops.matmul(x, first, False, False))
    y = ops.softmax(ops.matmul(hidden, second, False, False), 1)
    return openvino.Model([y], [x], "network")


def infer(runs: int, batches: tuple[int, ...] = (64, 256)) -> None:
    """Run the network; each run is a step."""
    compiled = openvino.compile_model(network())
    for number in range(runs):
        compiled(np.ones((batches[number % len(batches)], SIZES[0]), np.float32))
        opscope.step()


if __name__ == "__main__":
    infer(20)
