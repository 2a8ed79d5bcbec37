"""The cost of a generated pointwise kernel that only moves data, from the ops that its name lists.

Inductor names a kernel after the ops it fused: ``triton_poi_fused__to_copy_1`` casts, and does nothing else.
If a kernel computes, its name does not show how often, so its FLOPs stay unknown.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from opscope.core.schema import OpCall

from .registry import CannotKnow, Cost, lookup, words
from .shapes import NO_SHAPES, cost, distinct_tensors

_POINTWISE: Final = re.compile(r"^triton_poi_fused_(?P<ops>\w*?)_?\d+\Z")
#: Ops that read all of their input, and write each element of their result once.
_WHOLE: Final = frozenset(
    words("""
    _to_copy clone copy copy_ constant_pad_nd cat stack permute transpose t view reshape unsqueeze
    squeeze expand contiguous _unsafe_view
    """)
)
#: Families of ops that no pointwise kernel contains: in a name, they only show where the result goes.
_OTHERS: Final = ("gemm", "attention", "conv")
_LONGEST: Final = 40


def generated_cost(call: OpCall) -> Cost | None:
    """Return the cost of a kernel that only copies, casts or pads; None for any other call. Raises CannotKnow
    if its tensors are not recorded."""
    match = _POINTWISE.match(call.name)
    if match is None or not only_moves(match.group("ops")):
        return None
    operands = distinct_tensors(call)
    if len(operands) < 2:
        raise CannotKnow(NO_SHAPES)
    # the results are the last arguments: reads and writes are each counted once
    return cost(operands[:-1], operands[-1:], dtype=operands[-1].dtype)


@lru_cache(maxsize=4_096)
def only_moves(fused: str) -> bool:
    """Whether a list of op names, joined by ``_``, contains only ops that move data."""
    parts = fused.split("_")
    if not fused or len(parts) > _LONGEST:
        return False
    reached = {0: False}  # the number of parts that are read, and whether one of them moves
    for begin in range(len(parts)):
        if begin not in reached:
            continue
        for end in range(begin + 1, len(parts) + 1):
            name = "_".join(parts[begin:end])
            if name in _WHOLE:
                reached[end] = True
            elif _is_matrix(name):
                reached[end] = reached.get(end, False) or reached[begin]
    return reached.get(len(parts), False)


def _is_matrix(name: str) -> bool:
    return bool(name) and any(
        entry is not None and entry.family in _OTHERS
        for entry in (lookup(f"{space}::{name}") for space in ("aten", "vllm", "sglang"))
    )
