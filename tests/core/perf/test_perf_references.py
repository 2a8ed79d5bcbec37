"""The models against counts that TensorFlow's profiler and XLA's cost analysis gave for single ops.

``scripts/record_reference_counts.py`` remakes the two files; tests/on_jax counts live.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opscope.core import perf
from opscope.core.rangetext import parse

HERE = Path(__file__).parent


def recorded(framework):
    rows = json.loads((HERE / f"counts_{framework}.json").read_text("utf-8"))["counts"]
    return [(row["op"], row["flops"]) for row in rows]


def elements(call):
    return call.outputs[0].numel


#: Where TensorFlow's figure is another, and what it counts; ours is by the definition (the brute-force
#: loops of test_perf_brute_force.py, and XLA's count).
TENSORFLOW_COUNTS = {
    # k comparisons for a window of k elements, where k − 1 find the largest
    "MaxPool": lambda call, ours: ours + elements(call),
    # each input position with each weight, as if the gradient had the input's size; a gradient element
    # meets each weight once
    "Conv2DBackpropInput": lambda call, ours: ours // (6 * 6) * (8 * 8),
    # two an element for the root and the reciprocal, which is one function (XLA: one)
    "Rsqrt": lambda call, ours: 2 * ours,
    # 5 an element; the maximum and the sum of a row take one fewer
    "Softmax": lambda call, ours: ours + 2 * call.outputs[0].shape[0],
    # square, halve and add an element, where halving the sum once is enough
    "L2Loss": lambda call, ours: ours + call.inputs[0].numel - 1,
}


@pytest.mark.parametrize(("text", "flops"), recorded("tensorflow"))
def test_tensorflow(text, flops):
    call = parse(text)
    found, why = perf.cost(call)
    assert found is not None, why
    assert TENSORFLOW_COUNTS.get(call.name, lambda _, ours: ours)(call, found.flops) == flops
    assert found.bytes is not None


@pytest.mark.parametrize(("text", "flops"), recorded("jax"))
def test_xla(text, flops):
    """Equal to ``flops`` + ``transcendentals`` of ``cost_analysis()``, without exception."""
    found, why = perf.cost(parse(text))
    assert found is not None, why
    assert found.flops == flops


@pytest.mark.parametrize(
    ("text", "flops"),
    [
        # the same convolution in each framework's layout: 2·8·24·24·6·(5·5·3)
        ("Conv2D(f32[8,28,28,3], f32[5,5,3,6]) -> f32[8,24,24,6]", 4147200),
        ('Conv2D(f32[8,3,28,28], f32[5,5,3,6]) -> f32[8,6,24,24] {data_format="NCHW"}', None),
        ('Conv2D(f32[8,3,28,28], f32[6,3,5,5]) -> f32[8,6,24,24] {pad_mode="valid"}', 4147200),
        ("Conv(f32[8,3,28,28], f32[6,3,5,5], f32[6]) -> f32[8,6,24,24] {kernel_shape=[5, 5]}", 4147200),
        ("Conv(f32[8,3,28,28], f32[6,3,5,5]) {kernel_shape=[5, 5], pads=[0, 0, 0, 0]}", 4147200),
        ("aten::conv2d(f32[8,3,28,28], f32[6,3,5,5]) {stride=1}", 4147200),
        ('Conv2D(f32[8,28,28,3], f32[5,5,3,6]) {strides=[1, 1, 1, 1], padding="VALID"}', 4147200),
        ("MatMul(f32[8,3], f32[5,3]) {transpose_b=true}", 240),
        ("Gemm(f32[8,3], f32[5,3], f32[5]) {transB=1}", 240),
        ("Dense(f32[8,3], f32[5,3])", 240),
        ("BatchMatMul(f32[2,8,3], f32[2,3,5])", 480),
        ("MatMulNBits(f32[8,64], u8[32,2,16]) {N=32, K=64}", 32768),
        ("Relu(f32[4,5])", 20),
        ("ReduceMean(f32[4,5]) -> f32[4]", 20),
        ("AddN(f32[4,5], f32[4,5], f32[4,5])", 40),
        ("SoftmaxCrossEntropyWithLogits(f32[4,5], f32[4,5])", 160),
        ("LSTM(f32[5,2,3], f32[1,16,3], f32[1,16,4]) -> f32[5,1,2,4]", 2 * 10 * 16 * 7 + 22 * 4 * 10),
        ("ResourceApplyAdam(f32[100])", 1200),
    ],
)  # fmt: skip
def test_layouts_and_names_of_graphs(text, flops):
    found, why = perf.cost(parse(text))
    assert found is not None, why
    # NCHW data of TensorFlow still has weights [k, k, I, O]: 2·outputs·25·3
    expected = 2 * 8 * 6 * 24 * 24 * 25 * 3 if flops is None else flops
    assert found.flops == expected
