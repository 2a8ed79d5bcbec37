"""The performance model: FLOPs and bytes of an op from its shapes."""

from __future__ import annotations

from . import (
    families,
    graph_layers,
    graph_more,
    graph_names,
    graph_ops,
    hlo,
    hlo_calls,
    hlo_libraries,
    names_mindspore,
    names_onnx,
    names_tensorflow,
    prims,
)
from .api import (
    backward_costs,
    cost,
    entry_of,
    input_grad,
    is_view,
    op_type,
    wants_forward,
    weight_grad,
)
from .registry import CannotKnow, Cost, Entry, backward_of, entries, op, with_forward
from .table import columns

__all__ = [
    "CannotKnow", "Cost", "Entry", "backward_costs", "backward_of", "columns", "cost", "entries",
    "entry_of", "input_grad", "is_view", "op", "op_type", "wants_forward", "weight_grad", "with_forward",
]  # fmt: skip
#: The modules that register the families, named so that importing the package registers them all.
FAMILIES = (
    *families.FAMILIES,
    graph_layers,
    graph_more,
    graph_names,
    graph_ops,
    hlo,
    hlo_calls,
    hlo_libraries,
    names_mindspore,
    names_onnx,
    names_tensorflow,
    prims,
)
