"""Record dispatched ops as OpCalls, for tests of the cost models without the adapter."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from opscope.adapters.torch.call import dtype_name
from opscope.core.schema import OpCall, TensorSpec


def spec(tensor):
    return TensorSpec(dtype_name(tensor.dtype), tuple(tensor.shape))


def call_of(func, args, kwargs, out):
    """Return the OpCall of a dispatched op: tensors as inputs, scalars by the names in the schema."""
    inputs, params = [], []
    for place, argument in enumerate(func._schema.arguments):
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        if isinstance(value, torch.Tensor):
            inputs.append(spec(value))
        elif isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
            inputs.append(tuple(spec(v) if isinstance(v, torch.Tensor) else None for v in value))
        elif value is None and "Tensor" in str(argument.type):
            inputs.append(None)
        elif isinstance(value, (list, tuple)):
            params.append((argument.name, tuple(value)))
        elif isinstance(value, (bool, int, float, str)):
            params.append((argument.name, value))
        elif isinstance(value, torch.dtype):
            params.append((argument.name, dtype_name(value)))
    outs = out if isinstance(out, (list, tuple)) else (out,)
    outputs = tuple(spec(o) if isinstance(o, torch.Tensor) else None for o in outs)
    return OpCall(func._schema.name, tuple(inputs), outputs, tuple(params))


class Recorder(TorchDispatchMode):
    """Keeps every dispatched call except those with ``out=``."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if not any(argument.is_out for argument in func._schema.arguments):
            self.calls.append(call_of(func, args, kwargs or {}, out))
        return out
