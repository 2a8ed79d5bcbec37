"""The performance model: FLOPs and bytes of an op from its shapes.

The modules with models are loaded when one of their ops is first priced (``places.py``).
"""

from __future__ import annotations

from .api import (
    NO_MOVES,
    backward_costs,
    cost,
    entry_of,
    input_grad,
    is_view,
    op_type,
    wants_forward,
    wants_lengths,
    wants_model,
    weight_grad,
)
from .registry import CannotKnow, Cost, Entry, backward_of, entries, op, variant, with_forward
from .table import columns, no_work
from .tensorcore import MATRIX_FAMILIES

__all__ = [
    "MATRIX_FAMILIES", "NO_MOVES", "CannotKnow", "Cost", "Entry", "backward_costs", "backward_of", "columns",
    "cost", "entries", "entry_of", "input_grad", "is_view", "no_work", "op", "op_type", "variant",
    "wants_forward", "wants_lengths", "wants_model", "weight_grad", "with_forward",
]  # fmt: skip
