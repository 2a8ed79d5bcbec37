"""The questions whose answers a partial holds, either as sums that add up or as rows of a single process."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from opscope.core.question.record import Question, Rows, Sums
from opscope.core.question.registry import merging

#: The order of their tables in a partial, which determines its digest; tables of other questions follow.
_ORDER: Final = (
    "op_totals", "kernel_totals", "kernel_lengths", "kinds", "unattributed", "gaps", "range_totals",
    "missing_costs", "compiled", "idle", "idle_steps", "overlap", "device_use", "utilization", "memory",
    "step_phases",
)  # fmt: skip


@cache
def sums() -> Mapping[str, Sums]:
    """Return, for each question, how the answers of parts add up."""
    return {of.name: how for of, how in sorted(merging(Sums), key=_place)}


@cache
def rows() -> Mapping[str, tuple[Question, Rows]]:
    """Return the questions whose answers are kept row by row, each with the names under which a profile
    caches them."""
    return {
        of.key(of.bound((), how.asked)): (of, how) for of, how in sorted(merging(Rows), key=_place)
    }


def _place(of: tuple[Question, object]) -> int:
    name = of[0].name
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)
