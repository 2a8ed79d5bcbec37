"""The performance model: FLOPs and bytes of an op from its shapes."""

from __future__ import annotations

# what they register is wanted, not their names
from . import (  # noqa: F401
    families,
    graph_families,
    hlo,
    hlo_calls,
    hlo_libraries,
    names_mindspore,
    names_onnx,
    names_tensorflow,
    prims,
    serving_attention,
    serving_layers,
    serving_products,
    transformer_engine,
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
from .tensorcore import MATRIX_FAMILIES

__all__ = [
    "MATRIX_FAMILIES", "CannotKnow", "Cost", "Entry", "backward_costs", "backward_of", "columns", "cost", "entries",
    "entry_of", "input_grad", "is_view", "op", "op_type", "wants_forward", "weight_grad", "with_forward",
]  # fmt: skip
