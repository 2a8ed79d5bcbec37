"""The performance model: FLOPs and bytes of an op from its shapes."""

from __future__ import annotations

# Imported because they register ops. Aliases are registered after the families that they refer to.
from .ops import families  # noqa: F401

# isort: split
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
from .hlo import calls, instructions, libraries, transformer_engine  # noqa: F401
from .nodes import mindspore, onnx, tensorflow, tensorrt  # noqa: F401
from .ops import prims, serving_attention, serving_layers, serving_products  # noqa: F401
from .others import load as _load_others
from .registry import CannotKnow, Cost, Entry, backward_of, entries, op, variant, with_forward
from .table import columns
from .tensorcore import MATRIX_FAMILIES

__all__ = [
    "MATRIX_FAMILIES", "CannotKnow", "Cost", "Entry", "backward_costs", "backward_of", "columns",
    "cost", "entries", "entry_of", "input_grad", "is_view", "op", "op_type", "variant",
    "wants_forward", "weight_grad", "with_forward",
]  # fmt: skip

# after all of opscope's own, whose names and models the others build upon
_load_others()
