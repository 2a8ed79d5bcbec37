"""The frames that a saved profile stores, and how a stored frame is checked against its trace."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.totals import distinct_op_sums
from opscope.core.analysis.steps.detected_iterations import detected_steps
from opscope.core.attribution.found import NOTES, notes_table
from opscope.core.schema import TABLES
from opscope.core.tables.trace import Trace
from opscope.readers.profile.profile_folder import Tables

#: The frames that ``save`` stores with the trace if they were computed, and that are kept in a saved
#: profile's folder once they are. A value names the trace's table whose columns the frame repeats: these
#: columns are stored only once.
STORED: Final[Mapping[str, str | None]] = {
    "kernels": "kernels",
    "memops": "memops",
    "summary": None,
    "op_sums": None,
    "op_totals": None,
    "kernel_totals": None,
    "unattributed": None,
    "kinds": None,
    "gaps": None,
    "range_totals": None,
    "missing_costs": None,
    "communication": None,
    "collectives": None,
    "diagnosis": None,
    "detected_steps": None,
    "lost_kernels": None,
    NOTES: None,
}
#: The schemas of the stored frames that were requested so far.
_SCHEMAS: Final[dict[str, Mapping[str, pl.DataType]]] = {}


def linking_notes(profile: Answers) -> pl.DataFrame:
    """The notes of linking kernels to ops."""

    def make() -> pl.DataFrame:
        linked = profile.attribution.found
        return notes_table(() if linked is None else linked.notes)

    return profile._frame(NOTES, make)


#: The stored frames that answer no question.
_OTHERS: Final[Mapping[str, Callable[[Answers], pl.DataFrame]]] = {
    "op_sums": distinct_op_sums,
    "detected_steps": detected_steps,
    NOTES: linking_notes,
}


def stored_frame(profile: Answers, name: str) -> pl.DataFrame:
    """Return the frame ``name`` of ``STORED``, made if it is not there, with texts as categories."""
    other = _OTHERS.get(name)
    return profile.ask(name, categories=True) if other is None else other(profile)


def schema_of(name: str) -> Mapping[str, pl.DataType]:
    """Return the schema of a frame of ``STORED``, from a trace in which nothing ran on a GPU."""
    if name not in _SCHEMAS:
        empty = Answers(Trace.of({"kernels": pl.DataFrame(schema={"name": pl.Categorical})}))
        _SCHEMAS[name] = stored_frame(empty, name).schema
    return _SCHEMAS[name]


def without_own(name: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame of ``STORED`` without the columns of the trace's table that it repeats."""
    table = STORED[name]
    return frame if table is None else frame.drop(TABLES[table], strict=False)


def fitting(
    profile: Answers,
    stored: Mapping[str, pl.DataFrame],
    name: str,
    columns: Collection[str] | None,
    row: int | None,
) -> pl.DataFrame | None:
    """Return the stored frame, or only its ``columns`` and ``row`` if given; None if its columns or rows do
    not match this version and trace. Raises BadInput for a damaged frame."""
    table, schema = STORED[name], schema_of(name)
    if columns is not None and isinstance(stored, Tables):
        frame, names = stored.part(name, columns, row)
        rows = len(frame) if row is None else stored.unread(name)
    else:
        frame = stored[name]
        names, rows = set(frame.columns), len(frame)
        frame = frame if row is None else frame[row]
    if table is not None:
        both = [column for column in schema if column in TABLES[table]]
        wanted = both if columns is None else [column for column in both if column in columns]
        own, length = profile._own_columns(table, wanted, row)
        if frame.width and rows is not None and rows != length:
            return None
        frame = pl.concat([own, frame.drop(both, strict=False)], how="horizontal")
        names |= set(both)
    if names != set(schema):
        return None
    schema = {key: kind for key, kind in schema.items() if key in frame.columns}
    frame = frame.select(list(schema))
    text = (pl.String, pl.Categorical)
    fits = all(
        kind == other or (kind in text and other in text)
        for kind, other in zip(frame.dtypes, schema.values(), strict=True)
    )
    return frame if fits else None


def columns_of_trace(
    trace: Trace, table: str, wanted: Sequence[str], row: int | None
) -> tuple[pl.DataFrame, int]:
    """Return columns of a trace table (one ``row`` if given) and the table's number of rows. Of a saved table
    not yet read, only these columns are read."""
    tables: Any = trace.tables
    if isinstance(tables, Tables) and (length := tables.unread(table)) is not None:
        if not wanted:
            return pl.DataFrame(), length
        frame, names = tables.part(table, wanted, row)
        if names.issuperset(wanted):
            return frame.select(wanted), length
    rows = trace[table]
    columns = rows.select(wanted)
    return columns if row is None else columns[row], len(rows)
