"""Fused and generated kernels: the ops that a name or a fused computation tells of.

A fused region reads its external inputs and writes its external outputs, once each, and computes what
its inner ops compute. Inductor may write the FLOPs and bytes themselves (``kernel_flop`` and
``kernel_num_gb``), which then count.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from opscope.core.schema import OpCall, TensorSpec

from .registry import CannotKnow, Cost, lookup
from .shapes import Part, cost

_INDUCTOR = re.compile(
    r"^triton_(poi|red|per|tem|mix|spl|for)_fused_(?P<ops>.*?)(?:_(?P<number>\d+))?$"
)


def inductor_ops(kernel: str) -> tuple[str, ...]:
    """The ATen names in an Inductor kernel's name: ``triton_poi_fused_add_gelu_3`` → add, gelu.

    Words that name no known op are joined to the next until they do; what stays unknown is kept as it
    is, so that nothing is hidden. Empty for a kernel that is not Inductor's.
    """
    found = _INDUCTOR.match(kernel)
    if found is None:
        return ()
    parts = found.group("ops").split("_")
    names: list[str] = []
    at = 0
    while at < len(parts):
        if parts[at] == "" and at + 1 >= len(parts):
            break
        for end in range(len(parts), at, -1):
            word = "_".join(parts[at:end])
            if word and lookup(f"aten::{word}") is not None:
                names.append(f"aten::{word}")
                at = end
                break
        else:
            if parts[at]:
                names.append(parts[at])
            elif at + 1 < len(parts):
                parts[at + 1] = "_" + parts[at + 1]
            at += 1
    return tuple(names)


def from_metadata(
    kernel_flop: float | None, kernel_num_gb: float | None, dtype: str = "?"
) -> tuple[Cost | None, str | None]:
    """The cost that Inductor wrote beside its kernel: FLOP, and 10^9 bytes read and written.

    ``(None, reason)`` where neither is there. Its bytes are not split by direction: they are given as
    read, and nothing as written.
    """
    if kernel_flop is None and kernel_num_gb is None:
        return None, "the trace has no kernel_flop and no kernel_num_gb"
    if kernel_flop is None:
        return None, "the trace has no kernel_flop"
    flops = round(kernel_flop)
    moved = None if kernel_num_gb is None else round(kernel_num_gb * 1e9)
    return (
        Cost(
            matrix_flops=flops,
            bytes_read=moved,
            bytes_written=0 if moved is not None else None,
            by_dtype={dtype: flops} if flops else {},
            bytes_reason="" if moved is not None else "the trace has no kernel_num_gb",
            note="as the compiler wrote it",
        ),
        None,
    )


def region(
    inner: Sequence[OpCall], reads: Sequence[TensorSpec], writes: Sequence[TensorSpec]
) -> Cost:
    """A fused region's cost: inner FLOPs summed, external inputs and outputs once each.

    Raises CannotKnow where an inner op's FLOPs are not known.
    """
    flops = Cost()
    for call in inner:
        entry = lookup(call.name)
        if entry is None:
            raise CannotKnow(f"no cost model for {call.name} inside the fused region")
        flops += entry.model(call)
    outer: list[Part] = list(reads)
    edges = cost(outer, list(writes))
    return Cost(
        flops.matrix_flops,
        flops.vector_flops,
        edges.bytes_read,
        edges.bytes_written,
        flops.by_dtype,
        edges.bytes_reason,
        flops.masked_flops,
        flops.note,
    )
