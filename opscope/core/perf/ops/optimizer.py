"""Optimizer updates over lists of parameters: FLOPs per parameter, counted from the update's definition.

Adam: first moment 3 (subtract, multiply, add), second moment 4, denominator 3 (root, divide, add ε),
update 2, together 12; decoupled or added weight decay 2, AMSGrad 1. SGD: update 2, weight decay 2,
momentum 2, Nesterov 2. Lion: blend 3, sign 1, update 2, moment 3, decay 2. Adafactor: squared gradient,
row and column means, factored denominator, update: together 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from opscope.core.perf.registry import CannotKnow, Cost, op
from opscope.core.perf.shapes import Part, cost, lists, need, numel, promote, tensors
from opscope.core.schema import OpCall, TensorSpec

#: FLOPs per parameter without options.
UPDATES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "adam": 12,
        "adamw": 12,
        "sgd": 2,
        "momentum": 4,
        "adagrad": 5,
        "rmsprop": 8,
        "lion": 9,
        "adafactor": 9,
        "lamb": 18,
        "lars": 8,
        "ftrl": 10,
        "adadelta": 11,
        "ademamix": 18,
    }
)


def _truthy(call: OpCall, key: str) -> bool:
    value = call.param(key)
    return isinstance(value, (int, float)) and value != 0


def update_flops(kind: str, call: OpCall) -> int:
    """Return the FLOPs per parameter with the call's options. Raises CannotKnow for an unknown update."""
    try:
        each = UPDATES[kind]
    except KeyError:
        raise CannotKnow(f"the optimizer's update {kind!r} is not modelled") from None
    if _truthy(call, "weight_decay"):
        each += 2
    if kind in ("adam", "adamw") and call.param("amsgrad") is True:
        each += 1
    if kind == "sgd" and _truthy(call, "momentum"):
        each += 2
        if call.param("nesterov") is True:
            each += 2
    return each


@op(
    "aten::_fused_adam",
    "aten::_fused_adamw",
    "aten::_fused_sgd",
    "aten::_fused_adagrad",
    family="optimizer",
    source="FLOPs per parameter: opscope.core.perf.ops.optimizer.UPDATES",
)
def fused(call: OpCall) -> Cost:
    """Read lists of parameters, gradients and states; write the parameters and the states."""
    tensor_lists = [tensor_list for tensor_list in lists(call) if tensor_list]
    if len(tensor_lists) < 2:
        raise CannotKnow("the trace has no shapes for the lists of tensors")
    params, grads, *states = tensor_lists
    kind = call.name.partition(".")[0].rstrip("_").rsplit("_", 1)[-1]
    count = sum(map(numel, params))
    # a list of scalars (the step counts) is not a state of the parameters' sizes
    kept = [t for state in states for t in state if t.shape or numel(t) == 0]
    steps = [t for state in states for t in state if not t.shape]
    reads: list[Part] = [*params, *grads, *kept, *steps]
    return cost(
        reads, [*params, *kept], vector=update_flops(kind, call) * count, dtype=promote(params)
    )


@op(
    "bitsandbytes::optimizer_update_32bit",
    "bitsandbytes::optimizer_update_8bit_blockwise",
    "apex::multi_tensor_adam",
    "amp_C::multi_tensor_adam",
    "amp_C::multi_tensor_sgd",
    "amp_C::multi_tensor_lamb",
    "amp_C::multi_tensor_adagrad",
    family="optimizer",
    source="FLOPs per parameter: opscope.core.perf.ops.optimizer.UPDATES",
)
def by_name(call: OpCall) -> Cost:
    """One update, named by a parameter or by the end of the op's name."""
    named = call.param("optimizer_name")
    kind = named if isinstance(named, str) else call.name.rsplit("_", 1)[-1]
    groups = [tensor_list for tensor_list in lists(call) if tensor_list]
    if groups:
        grads, params = groups[0], groups[min(1, len(groups) - 1)]
        states = [t for group in groups[2:] for t in group]
    else:
        grads, params = [need(call, 0, "gradient")], [need(call, 1, "parameter")]
        states = tensors(call)[2:]
    count = sum(map(numel, params))
    return cost(
        [*grads, *params, *states],
        [*params, *states],
        vector=update_flops(kind, call) * count,
        dtype=promote(params),
    )


@op(
    "torch.nn.utils.clip_grad_norm_",
    family="optimizer",
    source="3 per element: square, add, scale",
)
def clip_grad_norm(call: OpCall) -> Cost:
    """The norm of all gradients, and their scaling."""
    operands = [t for tensor_list in lists(call) for t in tensor_list] or tensors(call)
    if not operands:
        raise CannotKnow("the trace has no shapes for the list of tensors")
    return cost(operands, operands, vector=3 * sum(map(numel, operands)), dtype=promote(operands))


def apply_update(kind: str, call: OpCall, param: TensorSpec, states: list[TensorSpec]) -> Cost:
    """Return the cost of one parameter's update in TensorFlow or MindSpore: parameter, states, gradient."""
    each = update_flops(kind, call)
    dtype = param.dtype
    return cost([param, *states, param], [param, *states], vector=each * numel(param), dtype=dtype)


@op(
    "fused_adam_cuda.adam",
    family="optimizer",
    source="FLOPs per parameter: opscope.core.perf.ops.optimizer.UPDATES; Apex's kernel for one tensor",
)
def apex_adam(call: OpCall) -> Cost:
    """Apex's Adam: parameters, their copy in half precision or an empty one, two states, gradient."""
    weight, copy, first, second, gradient = (
        need(call, index, label)
        for index, label in enumerate(("parameters", "copy", "mean", "variance", "gradient"))
    )
    written = [weight, first, second, *([copy] if numel(copy) else [])]
    return cost(
        [weight, first, second, gradient],
        written,
        vector=update_flops("adam", call) * numel(weight),
        dtype=weight.dtype,
    )
