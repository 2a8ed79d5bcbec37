"""The questions whose answers a partial holds: as sums that add up, or as the rows of a process alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from opscope.core.question.record import Question, Rows, Sums
from opscope.core.question.registry import merging

#: The order of their tables in a partial, of which its digest is: those of another question follow.
_ORDER: Final = (
    "op_totals", "kernel_totals", "kernel_lengths", "kinds", "unattributed", "gaps", "range_totals",
    "missing_costs", "compiled", "idle", "idle_steps", "overlap", "device_use", "utilization", "memory",
    "step_phases",
)  # fmt: skip


@cache
def sums() -> Mapping[str, Sums]:
    """Return how the answers of parts add up, by question."""
    return {of.name: how for of, how in sorted(merging(Sums), key=_place)}


@cache
def rows() -> Mapping[str, tuple[Question, Rows]]:
    """Return the questions of whose answers all rows are kept, by the names under which a profile keeps
    them."""
    return {
        of.key(of.bound((), how.asked)): (of, how) for of, how in sorted(merging(Rows), key=_place)
    }


def _place(of: tuple[Question, object]) -> int:
    name = of[0].name
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)
