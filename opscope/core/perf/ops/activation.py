"""Activations, forward and backward: FLOPs per element, counted from each function's definition.

Sigmoid is negate, exp, add, divide: 4. A backward count includes what the framework's kernel
recomputes from its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from opscope.core.perf.registry import CannotKnow, Cost, backward_of, op, variant, word_of
from opscope.core.perf.shapes import (
    cost,
    distinct_tensors,
    need,
    numel,
    outputs,
    result,
    sizes,
    tensors,
)
from opscope.core.schema import OpCall, TensorSpec

from .elementwise import elementwise_cost

FORWARD: Final[Mapping[str, int]] = MappingProxyType(
    {
        "relu": 1,
        "relu6": 2,
        "hardtanh": 2,
        "threshold": 1,
        "leaky_relu": 2,
        "rrelu": 2,
        "rrelu_with_noise": 2,
        "rrelu_with_noise_functional": 2,
        "prelu": 2,
        "_prelu_kernel": 2,
        "elu": 4,  # compare, exp, subtract, scale
        "celu": 5,
        "selu": 5,
        "sigmoid": 4,
        "hardsigmoid": 4,
        "log_sigmoid": 4,
        "log_sigmoid_forward": 4,
        "silu": 5,
        "mish": 5,  # exp, log1p, tanh, multiply, compare
        "hardswish": 5,
        "softplus": 4,
        "softsign": 3,
        "softshrink": 3,
        "hardshrink": 2,
        "tanhshrink": 2,
        "gelu": 5,  # scale, erf, add, halve, multiply; the tanh form is 8
        "glu": 5,
        "swiglu": 6,
    }
)
BACKWARD: Final[Mapping[str, int]] = MappingProxyType(
    {
        "threshold_backward": 1,
        "hardtanh_backward": 2,
        "leaky_relu_backward": 2,
        "rrelu_with_noise_backward": 2,
        "_prelu_kernel_backward": 4,
        "prelu_backward": 4,
        "elu_backward": 4,
        "sigmoid_backward": 3,
        "tanh_backward": 3,
        "hardsigmoid_backward": 3,
        "log_sigmoid_backward": 5,
        "silu_backward": 9,
        "mish_backward": 11,
        "hardswish_backward": 5,
        "softplus_backward": 5,
        "softshrink_backward": 3,
        "hardshrink_backward": 2,
        "gelu_backward": 11,  # erf form; tanh form 18
        "logit_backward": 4,
        "glu_backward": 9,
    }
)
_GELU_TANH = 8
_GELU_TANH_BACKWARD = 18


def _tanh_form(call: OpCall) -> bool:
    return call.param("approximate", "none") == "tanh"


@op(
    *(f"aten::{name}" for name in FORWARD if "glu" not in name),
    family="activation",
    source="FLOPs per element: opscope.core.perf.ops.activation.FORWARD",
)
def activation(call: OpCall) -> Cost:
    """The number of FLOPs per element that FORWARD lists."""
    x = need(call, 0, "operand")
    word = word_of(call.name)
    each = _GELU_TANH if word == "gelu" and _tanh_form(call) else FORWARD.get(word, 1)
    operands = [x, *tensors(call)[1:2]] if word in ("prelu", "_prelu_kernel") else [x]
    if word in ("prelu", "_prelu_kernel") and len(operands) > 1:  # the weight applies along dim 1
        w = operands[1]
        return cost([x, w], [result(call, sizes(x), x.dtype)], vector=2 * numel(x), dtype=x.dtype)
    figures = elementwise_cost(call, operands, each)
    if (
        word.startswith("rrelu_with_noise")
        and call.param("training") is True
        and len(tensors(call)) > 1
    ):
        noise = cost([], [tensors(call)[1]])  # drawn here and kept for backward
        return figures + noise
    return figures


@op(
    "aten::glu",
    "_C::silu_and_mul",
    "vllm::silu_and_mul",
    "_C::gelu_and_mul",
    "_C::gelu_tanh_and_mul",
    family="activation",
    source="the gate's activation and a multiplication per element of the half",
    variants={"result_first": "_C::* vllm::*"},
)
def gated(call: OpCall) -> Cost:
    """One half of the input gates the other: the activation and one multiplication per output."""
    operands = tensors(call)
    if variant(call, "result_first") and len(operands) > 1:  # the result is the first argument
        out, x = operands[0], operands[1]
    else:
        x = need(call, 0, "operand")
        out = TensorSpec(x.dtype, (numel(x) // 2,))
    each = {"glu": 5, "swiglu": 6, "silu_and_mul": 6, "gelu_and_mul": 6}.get(word_of(call.name), 9)
    return cost([x], [out], vector=each * numel(out), dtype=x.dtype)


@op(
    *(f"aten::{name}" for name in BACKWARD if name != "glu_backward"),
    family="activation",
    source="FLOPs per element: opscope.core.perf.ops.activation.BACKWARD",
    variants={
        "weighted": "aten::prelu_backward aten::_prelu_kernel_backward",
        "weight_by_element": "aten::_prelu_kernel_backward",
    },
)
def activation_backward(call: OpCall) -> Cost:
    """BACKWARD's FLOPs per element; reads the gradient and the tensor that the forward kept."""
    grad, kept = need(call, 0, "gradient"), need(call, 1, "forward's tensor")
    word = word_of(call.name)
    each = _GELU_TANH_BACKWARD if word == "gelu_backward" and _tanh_form(call) else BACKWARD[word]
    if variant(call, "weighted"):
        x, more = kept, tensors(call)[2:3]
        # the kernel's gradient of the weight has a value for each element; another op adds them up
        apart = variant(call, "weight_by_element")
        writes = outputs(call) or [x, *([TensorSpec(x.dtype, x.shape)] if apart else more)]
        return cost([grad, x, *more], writes, vector=each * numel(grad), dtype=grad.dtype)
    if word in (
        "log_sigmoid_backward",
        "rrelu_with_noise_backward",
    ):  # these ops also read a second tensor that the forward kept
        out = result(call, sizes(kept), kept.dtype)
        return cost(distinct_tensors(call)[:3], [out], vector=each * numel(grad), dtype=grad.dtype)
    return elementwise_cost(call, [grad, kept], each)


@op(
    "aten::_transform_bias_rescale_qkv",
    family="activation",
    source="bias 1 per element, scale 1 per element of the queries",
)
def split_heads(call: OpCall) -> Cost:
    """Add the bias, scale the queries, and lay out queries, keys and values by heads."""
    x = need(call, 0, "projected input")
    count = numel(x)
    writes = outputs(call) or [x]
    return cost(distinct_tensors(call), writes, vector=count + count // 3, dtype=x.dtype)


@op("aten::glu_backward", family="activation", source="9 per element of the gradient")
def glu_backward(call: OpCall) -> Cost:
    """Both halves' gradients: sigmoid recomputed (4), three multiplies, a subtraction, a product."""
    grad, x = need(call, 0, "gradient"), need(call, 1, "input")
    return cost([grad, x], [x], vector=9 * numel(grad), dtype=grad.dtype)


@backward_of(*(f"aten::{name}" for name in FORWARD if "glu" not in name), "aten::tanh")
def activation_gradient(call: OpCall) -> tuple[Cost, Cost]:
    """Read the gradient and one kept tensor, write one gradient."""
    x = need(call, 0, "operand")
    word = {"relu": "threshold", "relu6": "hardtanh"}.get(word_of(call.name), word_of(call.name))
    each = BACKWARD.get(word + "_backward")
    if each is None:
        raise CannotKnow(f"the backward of {word} is not modelled")
    if word == "gelu" and _tanh_form(call):
        each = _GELU_TANH_BACKWARD
    return cost([x, x], [x], vector=each * numel(x), dtype=x.dtype), Cost()
