"""Say what an operator was that ran inside the range of another: dtypes by sizes, its result, its parameters.

In PyNative mode MindSpore's profiler writes the sizes of an operator's inputs, and no dtypes. The adapter's range
around it has tensors with both: those that the operator got, or, around a gradient, the gradients that it starts
from and the inputs of the forward operator. An input with the sizes of some of these tensors is one of them or a
gradient of one, which has its dtype: where they all have one dtype, it is known, else it stays unknown.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from opscope.core.dialects.mindspore import node_name
from opscope.core.schema import Arg, OpCall, TensorSpec

from .graph_nodes import Known

#: The text of a range around the gradient of a forward operator ends so.
GRADIENT: Final = "Backward"
#: Which input of the forward operator the result of a gradient's operator is the gradient of.
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
#: Inputs that are sizes and not tensors of the model: MindSpore's operators take them as int64.
_SIZES: Final = {
    "Conv2DBackpropInput": 2,
    "Conv2DBackpropFilter": 2,
    "Conv3DBackpropInput": 2,
    "Conv3DBackpropFilter": 2,
}
#: Gradients whose operators have the parameters of the forward operator.
_SAME_PARAMS: Final = re.compile(r"Conv|Pool")


def completed(one: Known, around: OpCall) -> Known:
    """Return the operator ``one`` with what follows from the call ``around`` it."""
    op = node_name(one.node).op
    call = one.call
    tensors = [*around.input_leaves(), *(around.output_leaves() or ())]
    inputs: list[Arg] = []
    for place, tensor in enumerate(call.inputs):
        if not isinstance(tensor, TensorSpec) or tensor.dtype != "?":
            inputs.append(tensor)
            continue
        dtypes = {
            other.dtype for other in tensors if other is not None and other.shape == tensor.shape
        }
        if _SIZES.get(op) == place:
            dtypes = {"i64"}
        inputs.append(replace(tensor, dtype=dtypes.pop()) if len(dtypes) == 1 else tensor)
    outputs, params = call.outputs, call.params
    if around.name.endswith(GRADIENT):
        place_of = _RESULT.get(op)
        forward = _forward_inputs(around)
        if outputs is None and place_of is not None and place_of < len(forward):
            outputs = (forward[place_of],)
        if not params and _SAME_PARAMS.search(op):
            params = around.params
    return replace(
        one,
        call=replace(
            call, inputs=tuple(inputs), outputs=outputs, params=params, frames=around.frames
        ),
    )


def _forward_inputs(around: OpCall) -> tuple[Arg, ...]:
    """Return the forward operator's inputs in a gradient's call: what follows the gradient of its result."""
    return around.inputs[1:]
