"""The cost of Paddle's ops: those of ATen's ops that compute the same, under Paddle's names and parameters.

Loaded when a profile is read, where Paddle need not be installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from opscope.core.perf import CannotKnow, Cost, backward_of, op
from opscope.core.perf.registry import backward_model, lookup
from opscope.core.schema import OpCall

#: Ops with the same tensors in the same order, and no parameter that the cost depends on.
SAME = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "scale": "mul", "relu": "relu",
    "sigmoid": "sigmoid", "tanh": "tanh", "gelu": "gelu", "exp": "exp", "sqrt": "sqrt", "pow": "pow",
    "sum": "sum", "mean": "mean", "reshape": "view", "flatten": "view", "transpose": "permute",
}  # fmt: skip


def _as(aten: str, change: Callable[[OpCall], OpCall]) -> Callable[[OpCall], Cost]:
    entry = lookup(aten)
    assert entry is not None

    def model(call: OpCall) -> Cost:
        return entry.model(replace(change(call), name=aten))

    return model


def register(
    paddle: str, aten: str, change: Callable[[OpCall], OpCall] = lambda call: call
) -> None:
    """Give an op, and its gradient, the cost of the ATen op with the call that ``change`` makes of it."""
    entry, gradients = lookup(aten), backward_model(aten)
    assert entry is not None
    op(paddle, family=entry.family, source=f"as {aten}", view=entry.view)(_as(aten, change))
    if gradients is None:
        return
    found = gradients  # for the closures

    @backward_of(paddle)
    def _both(call: OpCall) -> tuple[Cost, Cost]:
        return found(replace(change(call), name=aten))

    @op(f"{paddle}_grad", family=entry.family, source=f"as the gradients of {aten}")
    def _gradient(call: OpCall) -> Cost:
        """The gradients that were computed: of the first input, and of the others."""
        wanted = call.param("gradients")
        if not isinstance(wanted, tuple) or not call.inputs:
            raise CannotKnow("the trace does not record which gradients were computed")
        data, others = _both(replace(call, inputs=call.inputs[1:], outputs=None))
        return (data if any(wanted[:1]) else Cost()) + (others if any(wanted[1:]) else Cost())


def _without_params(call: OpCall) -> OpCall:
    return replace(call, params=())


def _product(call: OpCall) -> OpCall:
    """Transposed operands, as ATen's call would have them."""
    flags = (call.param("transpose_x", False), call.param("transpose_y", False))
    inputs = list(call.inputs)
    for place, flag in enumerate(flags):
        tensor = call.tensor(place)
        if flag and tensor is not None and len(tensor.shape) > 1:
            *rest, rows, columns = tensor.shape
            inputs[place] = replace(tensor, shape=(*rest, columns, rows), strides=None)
    return replace(call, inputs=tuple(inputs), params=())


def _convolution(call: OpCall) -> OpCall:
    if call.param("data_format") != "NCHW":
        raise CannotKnow(f"the layout {call.param('data_format')!r} is not counted")
    if call.param("padding_algorithm") not in ("EXPLICIT", None):
        raise CannotKnow("the padding depends on the sizes")
    names = {
        "strides": "stride",
        "paddings": "padding",
        "dilations": "dilation",
        "groups": "groups",
    }
    params = tuple((names[name], value) for name, value in call.params if name in names)
    return replace(call, params=params)


for _paddle, _aten in SAME.items():
    register(f"paddle::{_paddle}", f"aten::{_aten}", _without_params)
register("paddle::matmul", "aten::matmul", _product)
# Paddle's weight is stored as inputs × outputs
register(
    "paddle::linear", "aten::matmul", lambda call: replace(call, inputs=call.inputs[:2], params=())
)
register("paddle::conv2d", "aten::conv2d", _convolution)
register("paddle::depthwise_conv2d", "aten::conv2d", _convolution)
