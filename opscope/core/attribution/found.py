"""The results of the slow attribution rules, as tables that can be stored with the trace.

With them, ``attribute`` applies only the other rules. Stored tables are untrusted: ``of_tables`` and
``check`` refuse values that no rule could have found in the trace, such as row numbers out of range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.inferred_steps import SCHEMA as STEPS
from opscope.core.attribution.known import Launched, Note, Rows
from opscope.core.attribution.reasons import HAS_OP, REASONS
from opscope.core.schema import TABLES
from opscope.core.tables.columns import pieces
from opscope.core.tables.intervals import NONE
from opscope.core.tables.trace import Trace, table_schema

#: The trace's table that each table of ``Launched`` belongs to.
_LAUNCHED: Final = {"launched_kernels": "kernels", "launched_memops": "memops"}
_PARENT: Final = "enclosing_ops"
_STEPS: Final = "inferred_steps"
NOTES: Final = "linking_notes"
_COLUMNS: Final[Mapping[str, Any]] = {
    "call": pl.Int32,
    "op": pl.Int32,
    "reason": pl.UInt8,
    "inferred": pl.Boolean,
    "replay": pl.Int32,
}
_SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    **dict.fromkeys(_LAUNCHED, _COLUMNS),
    _PARENT: {"parent": pl.Int32},
    _STEPS: STEPS,
    NOTES: {name: table_schema("notes")[name] for name in TABLES["notes"]},
}
#: The names of the tables.
NAMES: Final = tuple(_SCHEMAS)


class Unfit(ValueError):
    """Stored tables do not fit the trace."""


@dataclass(frozen=True, slots=True)
class Found:
    """The results of the rules marked ``stored``.

    ``launched``: by table, before kernels that name their op are assigned to it. ``parent``: per range row,
    before inferred steps are added. ``steps``: the inferred steps, or None. ``notes``: all notes of all
    rules.
    """

    launched: Mapping[str, Launched]
    parent: Rows
    steps: pl.DataFrame | None
    notes: tuple[Note, ...]

    def tables(self) -> dict[str, pl.DataFrame]:
        """Return the results as tables, by ``NAMES``."""
        tables = {
            name: pl.DataFrame(
                {column: getattr(self.launched[table], column) for column in _COLUMNS},
                schema=dict(_COLUMNS),
            )
            for name, table in _LAUNCHED.items()
        }
        tables[_PARENT] = pl.DataFrame({"parent": self.parent}, schema=dict(_SCHEMAS[_PARENT]))
        tables[_STEPS] = pl.DataFrame(schema=STEPS) if self.steps is None else self.steps
        tables[NOTES] = notes_table(self.notes)
        return tables

    @classmethod
    def of_tables(cls, tables: Mapping[str, pl.DataFrame], trace: Trace) -> Found:
        """Return the results stored in tables that ``tables`` made. Raises Unfit if they do not fit the
        trace."""
        for name, schema in _SCHEMAS.items():
            if not _has_schema(tables[name], schema):
                raise Unfit(f"{name} has other columns")
        calls = len(trace["calls"])
        launched = {}
        for name, table in _LAUNCHED.items():
            frame = tables[name]
            if len(frame) != len(trace[table]):
                raise Unfit(f"{name} has another number of rows than {table}")
            launched[table] = columns = Launched(*(_array(frame[column]) for column in _COLUMNS))
            if not (_in_range(columns.call, calls) and _in_range(columns.replay, calls)):
                raise Unfit(f"{name} names calls that are not there")
            if (columns.reason >= len(REASONS)).any() or (
                (columns.reason == HAS_OP) != (columns.op >= 0)
            ).any():
                raise Unfit(f"{name} has impossible reasons")
        steps, notes = tables[_STEPS], tables[NOTES]
        return cls(
            launched,
            _array(tables[_PARENT]["parent"]),
            steps if len(steps) else None,
            notes_of(notes),
        )

    def check(self, is_op: NDArray[np.bool_]) -> None:
        """Raise Unfit unless all rows referred to as ops are ops; ``is_op`` is per range row."""
        count = len(is_op)
        if len(self.parent) != count:
            raise Unfit("the number of ranges differs")
        for rows in (self.parent, *(launched.op for launched in self.launched.values())):
            if not _in_range(rows, count) or not all(
                is_op[here[here >= 0]].all() for here in (rows[part] for part in pieces(len(rows)))
            ):
                raise Unfit("ranges that are no ops are taken for ops")
        if _circular(self.parent):
            raise Unfit("ops enclose each other in a circle")


def notes_table(notes: tuple[Note, ...]) -> pl.DataFrame:
    """Return notes as rows of the trace's ``notes``."""
    rows = [(note.severity, note.what, note.how_many) for note in notes]
    return pl.DataFrame(rows, schema=dict(_SCHEMAS[NOTES]), orient="row")


def notes_of(rows: pl.DataFrame) -> tuple[Note, ...]:
    """Return the notes whose rows ``notes_table`` made."""
    return tuple(
        Note(*row) for row in rows.with_columns(pl.col("severity", "what").cast(pl.String)).rows()
    )


def _has_schema(frame: pl.DataFrame, schema: Mapping[str, Any]) -> bool:
    text = (pl.String, pl.Categorical)
    return (
        frame.columns == list(schema)
        and all(
            kind == other or (kind in text and other in text)
            for kind, other in zip(frame.dtypes, schema.values(), strict=True)
        )
        and not any(frame.null_count().row(0))
    )


def _array(column: pl.Series) -> NDArray[Any]:
    return np.array(column.to_numpy())


def _in_range(rows: Rows, count: int) -> bool:
    return not len(rows) or (int(rows.min()) >= NONE and int(rows.max()) < count)


def _circular(parent: Rows) -> bool:
    """Return whether the parents of some row form a cycle. Each pass doubles the distance searched."""
    # rows are mostly ordered by start: then each parent comes before its rows, and no cycle is possible
    if all((parent[part] < np.arange(part.start, part.stop)).all() for part in pieces(len(parent))):
        return False
    further, rows = parent.copy(), np.flatnonzero(parent >= 0)
    for _ in range(len(parent).bit_length() + 1):
        here = further[rows]
        here = np.where(here >= 0, further[here], NONE)
        further[rows] = here
        rows = rows[here >= 0]
        if not len(rows):
            return False
    return True
