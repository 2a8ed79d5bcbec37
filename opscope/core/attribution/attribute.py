"""Attribution: kernel → launch → the op that launched it, and what encloses that op.

The rules are in ``attribution.order``, numbered as in ARCHITECTURE.md. Everything works on whole columns;
the loops are over threads and over distinct texts.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.known import Known, Launched, Note
from opscope.core.attribution.launching_calls import launching_calls
from opscope.core.attribution.op_ranges import RUNTIME
from opscope.core.attribution.order import (
    GIVEN_BY_ORDER,
    GIVEN_TO_REGION,
    RULES,
    STEPS_INFERRED,
)
from opscope.core.attribution.reasons import REASONS
from opscope.core.tables.interpret import Meaning
from opscope.core.tables.intervals import Ints, nearest
from opscope.core.tables.trace import Trace

__all__ = [
    "GIVEN_BY_ORDER",
    "GIVEN_TO_REGION",
    "REASONS",
    "RUNTIME",
    "STEPS_INFERRED",
    "Attribution",
    "Launched",
    "attribute",
    "launching_calls",
]

#: Levels that are climbed row by row; real traces nest less, hostile ones by thousands.
_DEEP: Final = 64
#: One row in so many: then sorting these costs less than a flag for each row of the trace.
_FEW: Final = 64


@dataclass(slots=True)
class Attribution:
    """A trace with its kernels tied to ops.

    ``is_op`` tells which range rows are ops, ``parent`` the op row that encloses each (-1: none).
    """

    trace: Trace
    meaning: Meaning
    is_op: NDArray[np.bool_]
    parent: NDArray[np.int32]
    kernels: Launched
    memops: Launched

    def climb(self, rows: Ints, wanted: NDArray[np.bool_]) -> Ints:
        """For each op row the nearest of itself and its ancestors that is ``wanted``.

        ``wanted`` has one flag per range row; -1 in, -1 out; -1 where there is none.
        """
        here: Ints = np.asarray(rows, np.int64).copy()
        pending = np.flatnonzero(here >= 0)
        for level in itertools.count():
            if not len(pending):
                break
            if level == _DEEP:  # one by one, 60,000 nested ranges take 17 s
                found = nearest(self.parent.astype(np.int64), wanted)
                here[pending] = found[here[pending]]
                break
            pending = pending[~wanted[here[pending]]]
            here[pending] = self.parent[here[pending]]
            pending = pending[here[pending] >= 0]
        return here

    def above(self, rows: Ints) -> NDArray[np.bool_]:
        """Per range row: whether it is a strict ancestor of any of the op rows ``rows``."""
        marked = np.zeros(len(self.parent), bool)
        here = self.parent[rows]
        while len(here := here[here >= 0]):
            if len(here) * _FEW < len(marked):  # of a deep nest: not all rows for each level
                here = np.unique(here[~marked[here]])
                marked[here] = True
                here = self.parent[here]
                continue
            fresh = np.zeros(len(marked), bool)  # each once, without a sort
            fresh[here] = True
            fresh &= ~marked
            marked |= fresh
            here = self.parent[np.flatnonzero(fresh)]
        return marked


def attribute(trace: Trace) -> Attribution:
    """Tie every kernel and copy of ``trace`` to the op that launched it (rules 0 to 5, 7, 8).

    What the rules infer is noted in ``trace``'s notes, once; nothing else of it is altered.
    """
    known = Known.of(trace)
    for rule in RULES:
        known = rule.apply(known)
    _say(trace, known.notes)
    return Attribution(
        known.trace,
        known.meaning,
        known.is_op,
        known.parent,
        known.launched["kernels"],
        known.launched["memops"],
    )


def _say(trace: Trace, notes: tuple[Note, ...]) -> None:
    """Add the notes to ``trace``'s; a profile that was saved has them already."""
    said = set(trace["notes"]["what"].cast(pl.String).to_list()) if notes else set()
    for note in notes:
        if note.what not in said:
            trace.note(note.severity, note.what, note.how_many)
