"""Describe an operator that ran inside another: its dtypes by its sizes, its result, its parameters.

MindSpore's profiler writes the sizes of an operator's inputs, and no dtypes. The call around it has tensors
with both: an operator's inputs, or, around a gradient, the incoming gradient and the forward operator's
tensors. An input with the sizes of some of these tensors is one of them, or a gradient, which has the dtype
of its tensor. If all tensors of these sizes have one dtype, the input has it; else it stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from opscope.core.dialects.mindspore import node_name
from opscope.core.schema import Arg, OpCall, TensorSpec

from .known import Known

#: Suffix of the text of a range around the gradient of a forward operator.
GRADIENT: Final = "Backward"
#: For a gradient's operator: the input of the forward operator whose gradient is its result.
_RESULT: Final = {
    "ReluGrad": 0,
    "Conv2DBackpropInput": 0,
    "Conv2DBackpropFilter": 1,
    "Conv3DBackpropInput": 0,
    "Conv3DBackpropFilter": 1,
    "BiasAddGrad": 1,
    "MaxPoolGrad": 0,
    "AvgPoolGrad": 0,
}
#: Inputs that are sizes, not tensors of the model: MindSpore's operators take them as int64.
_SIZES: Final = {
    "Conv2DBackpropInput": 2,
    "Conv2DBackpropFilter": 2,
    "Conv3DBackpropInput": 2,
    "Conv3DBackpropFilter": 2,
}
#: Gradients whose operators have the parameters of the forward operator.
_SAME_PARAMS: Final = re.compile(r"Conv|Pool")
#: Operators whose inputs all have one dtype: MindSpore inserts casts if they differ.
_ONE_DTYPE: Final = frozenset(("Add", "Sub", "Mul", "Div", "RealDiv", "AddN", "Maximum", "Minimum"))
#: Products, whose gradients are products.
PRODUCTS: Final = frozenset(("MatMul", "BatchMatMul"))


def completed(planned: Known, around: OpCall, more: Sequence[TensorSpec | None] = ()) -> Known:
    """Return the operator ``planned`` with everything that follows from the call ``around`` it and ``more``
    tensors."""
    op = node_name(planned.node).op
    call = planned.call
    tensors = [*around.input_leaves(), *(around.output_leaves() or ()), *more]
    inputs: list[Arg] = []
    for index, tensor in enumerate(call.inputs):
        if not isinstance(tensor, TensorSpec) or tensor.dtype != "?":
            inputs.append(tensor)
            continue
        dtypes = {
            other.dtype for other in tensors if other is not None and other.shape == tensor.shape
        }
        if _SIZES.get(op) == index:
            dtypes = {"i64"}
        inputs.append(replace(tensor, dtype=dtypes.pop()) if len(dtypes) == 1 else tensor)
    if op in _ONE_DTYPE:
        inputs = _with_one_dtype(inputs)
    outputs, params = call.outputs, call.params
    if around.name.endswith(GRADIENT):
        place_of = _RESULT.get(op)
        forward = around.inputs[1:]  # the next input has the sizes of the result's gradient
        if outputs is None and place_of is not None and place_of < len(forward):
            outputs = (forward[place_of],)
        if not params and _SAME_PARAMS.search(op):
            params = around.params
    full_call = replace(
        call, inputs=tuple(inputs), outputs=outputs, params=params, frames=around.frames
    )
    return replace(planned, call=full_call)


def _with_one_dtype(inputs: list[Arg]) -> list[Arg]:
    dtypes = {input_.dtype for input_ in inputs if isinstance(input_, TensorSpec)} - {"?"}
    if len(dtypes) != 1:
        return inputs
    (dtype,) = dtypes
    return [
        replace(input_, dtype=dtype)
        if isinstance(input_, TensorSpec) and input_.dtype == "?"
        else input_
        for input_ in inputs
    ]


def product_gradient(around: OpCall, turn: int, count: int) -> OpCall | None:
    """Return the call of product number ``turn`` of ``count`` in a product's gradient; None if not known.
    MindSpore's gradient of a product computes the first operand's gradient, then the second's, if they are
    needed: the results show which are (``mindspore/ccsrc/frontend/expander/grad/grad_math_ops.cc``)."""
    kind = around.name.removesuffix(GRADIENT)
    tensors = [input_ for input_ in around.inputs if isinstance(input_, TensorSpec)]
    results = around.outputs
    if kind not in PRODUCTS or len(tensors) != 3 or len(around.inputs) != 3 or results is None:
        return None
    wanted = [index for index, result in enumerate(results) if isinstance(result, TensorSpec)]
    if len(results) > 2 or len(wanted) != count or turn >= count:
        return None
    grad, a, b = tensors
    ta, tb = (around.param(name) is True for name in ("transpose_a", "transpose_b"))
    if wanted[turn] == 0:
        inputs, flags = ((b, grad), (tb, True)) if ta else ((grad, b), (False, not tb))
    else:
        inputs, flags = ((grad, a), (True, ta)) if tb else ((a, grad), (not ta, False))
    params = (("transpose_a", flags[0]), ("transpose_b", flags[1]))
    return OpCall(kind, inputs, (results[wanted[turn]],), params, around.device, around.frames)
