"""Attribute the kernels of a trace: kernel → launch → the op that launched it → the ops around that op.

The rules are in ``attribution.order``, numbered as in docs/decisions/attribution.md. Everything works on
whole columns; the loops are over threads and over distinct texts.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core import progress
from opscope.core.attribution.early_kernels import early_notes
from opscope.core.attribution.found import Found
from opscope.core.attribution.known import Known, Launched, Note, Rows
from opscope.core.attribution.launching_calls import launching_calls
from opscope.core.attribution.op_ranges import RUNTIME
from opscope.core.attribution.order import (
    GIVEN_BY_ORDER,
    GIVEN_TO_REGION,
    RULES,
    STEPS_INFERRED,
)
from opscope.core.attribution.reasons import REASONS
from opscope.core.tables.columns import pieces
from opscope.core.tables.interpret import Meaning
from opscope.core.tables.intervals import Ints, nearest
from opscope.core.tables.mapped import Mapped, let_go, zeros
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

_Kind = TypeVar("_Kind", bound=np.generic)
#: Number of levels that ``climb`` walks one by one. Real traces nest less, hostile ones by thousands.
_DEEP: Final = 64
#: From this many levels on, the rows of a level are deduplicated by sorting.
_FEW: Final = 8
#: The fields that other rules need from the stored rules.
_LEARNED: Final = ("launched", "parent", "steps")


@dataclass(slots=True)
class Attribution:
    """A trace with the op of each kernel, copy and set.

    ``is_op``: per range row, whether it is an op. ``parent``: per range row, the op row that encloses it (-1:
    none). ``also_forward``: per range row, whether a selection left it out although it is the forward op of
    an op that stays; None if nothing was selected. ``found``: results that can be stored to attribute the
    same trace faster next time; None for a selection. ``mapped``: where long columns are kept, if not in
    memory.
    """

    trace: Trace
    meaning: Meaning
    is_op: NDArray[np.bool_]
    parent: NDArray[np.int32]
    kernels: Launched
    memops: Launched
    also_forward: NDArray[np.bool_] | None = None
    found: Found | None = field(default=None, compare=False, repr=False)
    mapped: Mapped | None = field(default=None, compare=False, repr=False)

    def kept(self, column: NDArray[_Kind]) -> NDArray[_Kind]:
        """Return a long column, stored where the attribution keeps its columns."""
        return column if self.mapped is None else self.mapped.array(column)

    def climb(self, rows: Ints, wanted: NDArray[np.bool_]) -> Ints:
        """Return for each op row the nearest row among itself and its ancestors that is ``wanted``.

        ``wanted`` has one flag per range row. The result is -1 for a row of -1 and where no such row is
        wanted.
        """
        here: Ints = np.asarray(rows, np.int64).copy()
        pending = np.flatnonzero(here >= 0)
        for level in itertools.count():
            if not len(pending):
                break
            if level == _DEEP:  # level by level, 60,000 nested ranges take 17 s
                above = nearest(self.parent.astype(np.int64), wanted)
                here[pending] = above[here[pending]]
                break
            pending = pending[~wanted[here[pending]]]
            here[pending] = self.parent[here[pending]]
            pending = pending[here[pending] >= 0]
        return here

    def above(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a flag per range row: whether it is a strict ancestor of any op row with a flag."""
        marked = zeros(self.mapped, len(self.parent), bool)
        for part in pieces(len(flags)):
            here = self.parent[part][flags[part]]
            for level in itertools.count():
                here = here[here >= 0]
                here = here[
                    ~marked[here]
                ]  # rows above a marked row are marked already, or are in this pass
                if not len(here):
                    break
                marked[here] = True
                # siblings mostly follow each other; in a deep nest no row may be walked twice
                here = np.unique(here) if level > _FEW else here[_changes(here)]
                here = self.parent[here]
        return marked


def _changes(rows: Rows) -> NDArray[np.bool_]:
    first = np.ones(len(rows), bool)
    np.not_equal(rows[1:], rows[:-1], out=first[1:])
    return first


def attribute(
    trace: Trace,
    given: Found | None = None,
    *,
    infer_steps: bool = True,
    mapped: Mapped | None = None,
) -> Attribution:
    """Tie every kernel, copy and set of ``trace`` to the op that launched it (rules 0 to 5, 7, 8).

    What the rules infer is added once to the notes of ``trace``. Nothing else in ``trace`` changes.
    ``given``: results of an earlier attribution of the same trace, which save time and do not change the
    result. Raises Unfit if they cannot belong to this trace. Without ``infer_steps``, no steps are inferred
    for programs that mark none; this saves half of the time if many processes have few events each.
    """
    if given is not None and mapped is not None:
        given = _stored_in(given, mapped)
    rules = list(RULES) if given is None else [rule for rule in RULES if not rule.stored]
    if not infer_steps:
        rules = [rule for rule in rules if rule.number != "steps"]
    known_rows = Known.of(trace, mapped)
    known_rows = known_rows if given is None else _with(known_rows, given)
    learned: dict[str, Any] = {}
    with progress.stage("linking kernels to ops", sum(rule.weight for rule in rules)) as stage:
        for rule in rules:
            known_rows = rule.apply(known_rows)
            if given is not None and rule.number == "ops":  # no earlier rule needs it
                given.check(known_rows.is_op)
            if mapped is not None:
                known_rows = _move(known_rows, mapped)
            if rule.stored:
                learned |= {
                    name: getattr(known_rows, name) for name in _LEARNED if name in rule.gives
                }
            stage.add(rule.weight)
    if given is None:
        given = Found(
            **{"steps": None, **learned},
            notes=(*known_rows.notes, *early_notes(known_rows.trace, known_rows.launched)),
        )
    add_notes(trace, given.notes)
    return Attribution(
        known_rows.trace,
        known_rows.meaning,
        known_rows.is_op,
        known_rows.parent,
        known_rows.launched["kernels"],
        known_rows.launched["memops"],
        found=given,
        mapped=mapped,
    )


def _with(known_rows: Known, given: Found) -> Known:
    """Return the knowledge with the results ``given``; they are not checked against the ranges yet."""
    links = {name: links_of_table.call for name, links_of_table in given.launched.items()}
    return replace(
        known_rows, links=links, launched=given.launched, parent=given.parent, steps=given.steps
    )


def _stored_in(given: Found, mapped: Mapped) -> Found:
    """Return the results with their long columns in files, which exist as long as the attribution does."""
    return replace(
        given,
        launched={
            name: _launched_in(links_of_table, mapped)
            for name, links_of_table in given.launched.items()
        },
        parent=mapped.array(given.parent),
    )


def _launched_in(launched: Launched, mapped: Mapped) -> Launched:
    return Launched(*(mapped.array(getattr(launched, field.name)) for field in fields(launched)))


def _move(known_rows: Known, mapped: Mapped) -> Known:
    """Return the knowledge with its long columns in files; the rules read them and make new ones."""
    let_go()
    meaning = known_rows.meaning
    return replace(
        known_rows,
        trace=_with_ranges_moved(known_rows.trace, mapped),
        links={name: mapped.array(rows) for name, rows in known_rows.links.items()},
        meaning=replace(
            meaning,
            reading=mapped.array(meaning.reading),
            seq=meaning.seq.moved(mapped),
            fwd_thread=meaning.fwd_thread.moved(mapped),
        ),
        is_op=mapped.array(known_rows.is_op),
        nested=mapped.array(known_rows.nested),
        used=mapped.array(known_rows.used),
        parent=mapped.array(known_rows.parent),
        call_op=mapped.array(known_rows.call_op),
        launched={
            name: _launched_in(links_of_table, mapped)
            for name, links_of_table in known_rows.launched.items()
        },
    )


def _with_ranges_moved(trace: Trace, mapped: Mapped) -> Trace:
    """Return the trace with its ranges in files, each column in one piece, if a rule has added ranges:
    NumPy copies a column in two pieces at every read."""
    ranges = trace["ranges"]
    if ranges.n_chunks() < 2:
        return trace
    empty = [is_empty == len(ranges) for is_empty in ranges.null_count().row(0)]
    columns_moved = [
        mapped.column(ranges[name]).rechunk()
        for name, no in zip(ranges.columns, empty, strict=True)
        if not no
    ]
    schema = ranges.schema
    lacking = (pl.lit(None, schema[name]).alias(name) for name in schema)
    columns = pl.DataFrame(columns_moved)
    columns = columns.with_columns(column for column, no in zip(lacking, empty, strict=True) if no)
    return replace(trace, tables={**trace.tables, "ranges": columns.select(ranges.columns)})


def add_notes(trace: Trace, notes: tuple[Note, ...]) -> None:
    """Add ``notes`` to those of ``trace``; a saved profile has these already."""
    present = set(trace["notes"]["what"].cast(pl.String).to_list()) if notes else set()
    for note in notes:
        if note.what not in present:
            trace.note(note.severity, note.what, note.how_many)
