"""Frames as tables: the first rows, the columns to show, and the order in which columns are dropped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import units
from .column import Column as Documented
from .forms import columns
from .layout import Column, Table
from .record import Report, View
from .step_notes import step_notes

if TYPE_CHECKING:
    import polars as pl


def listed(report: Report, frame: pl.DataFrame, view: View, title: str | None = None) -> Table:
    """Return the report's ``frame`` as a table of the columns that the report shows."""
    return totals(
        report.heading if title is None else title,
        frame,
        report.keys or frame.columns,
        view.top,
        report.no_rows,
        report.holds.columns,
        report.forms,
    )


def with_step_notes(report: Report, profile: Any, view: View) -> Table:
    """Return a report of steps, with lines that say where the steps come from and which are warm-up."""
    table = listed(report, report.frame(profile), view)
    return replace(table, footnotes=[*table.footnotes, *step_notes(profile)])


def totals(
    title: str,
    frame: pl.DataFrame,
    keys: Sequence[str],
    top: int | None,
    empty: str,
    documented: Iterable[Documented] = (),
    forms: Iterable[Column] = (),
) -> Table:
    """Return the first ``top`` rows of a frame (None: all) as a table of the columns ``keys``, in that order.

    ``empty`` is the text shown if the frame has no rows. ``documented`` and ``forms`` define how to show
    columns, as in ``columns.columns``.
    """
    if frame.is_empty():
        return Table(title, columns(keys, documented, forms), (), (empty,))
    shown = frame if top is None else frame.head(top)
    notes = []
    if len(shown) < len(frame):
        notes.append(f"{len(shown)} of {len(frame):,} rows; --top 0 shows all")
    rows = shown.select([key for key in keys if key in frame.columns]).to_dicts()
    if any(row.get("flops", 0) is None for row in rows):
        notes.append(f"{units.UNKNOWN} is not known: opscope doctor FILE says why")
    ranks = {"outputs": 9, "bytes": 8, "tensor_core": 7, "source": 6, "direction": 4}
    ranks |= {"rated": 9, "intensity": 8, "attained_bandwidth": 7, "over_reason": 6}
    if keys[0] != "layer":
        ranks["layer"] = 5
    ranks |= {next((key for key in ("name", "op") if key in keys), ""): -1}
    chosen = {form.key: form.rank for form in forms}
    shown_columns = [
        replace(column, rank=chosen.get(column.key) or ranks.get(column.key, 0))
        for column in columns(keys, documented, forms)
        if column.key in frame.columns
    ]
    return Table(title, shown_columns, rows, notes)


def running(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with a column ``running``: the sum of the shares of the row and all rows above it."""
    share = frame["share"].fill_null(0).cum_sum().clip(upper_bound=1.0)
    return frame.with_columns(share.set(frame["share"].is_null(), None).alias("running"))
