"""The table of a tree-shaped frame, folded to the rows with the most time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from opscope.core.question.forms import columns
from opscope.core.question.layout import Column, Table
from opscope.core.question.record import Report, View

_BRANCH, _LAST, _BESIDE, _BELOW = "├ ", "└ ", "│ ", "  "


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns that make the tree: a row's number, its parent's, and its name."""

    number: str
    parent: str
    name: str


def folded(report: Report, frame: pl.DataFrame, view: View, shape: Shape) -> Table:
    """Return the rows with the most time, drawn as a tree.

    ``frame`` has each row after its parent, and numbers its rows from 0. A row says how many rows inside it
    are not shown; its totals include them.
    """
    forms = columns(report.keys, report.holds.columns, report.forms)
    if frame.is_empty():
        return Table(report.title, forms, (), (report.no_rows,))
    kept = _keep(frame, view.top, shape)
    rows = _rows(frame, kept, report.keys, shape)
    notes = []
    if len(kept) < len(frame):
        notes.append(f"{len(kept)} of {len(frame):,} rows; --top 0 shows all")
    tables = [_plain(form, shape.name) for form in forms if _say(form, rows, shape.name)]
    return Table(report.title, tables, rows, notes)


def _keep(frame: pl.DataFrame, top: int | None, shape: Shape) -> list[int]:
    """Return the numbers of the rows with the most time, in order."""
    if top is None or top >= len(frame):
        return list(range(len(frame)))
    # a row has at least as much time as one inside it, and comes first if equal, so it is kept too
    by_time = ("device_total", "host_total", "depth")
    most = frame.sort(
        *by_time, descending=[True, True, False], nulls_last=True, maintain_order=True
    )
    kept: list[int] = most[shape.number].head(top).sort().to_list()
    return kept


def _rows(
    frame: pl.DataFrame, kept: list[int], keys: Sequence[str], shape: Shape
) -> list[dict[str, Any]]:
    """Return the kept rows, each name behind its branch, with the number of rows that are folded below it."""
    below = frame.filter(pl.col(shape.parent).is_in(kept) & ~pl.col(shape.number).is_in(kept))
    hidden = dict(below.group_by(shape.parent).len().iter_rows())
    inside: dict[int | None, list[dict[str, Any]]] = {}
    columns_needed = list(dict.fromkeys([shape.number, shape.parent, *keys]))
    for row in frame[kept].select(columns_needed).to_dicts():
        inside.setdefault(row[shape.parent], []).append(row)
    rows: list[dict[str, Any]] = []
    waiting = [(row, "", "") for row in reversed(inside.get(None, []))]
    while waiting:
        row, lead, under = waiting.pop()
        more = hidden.get(row[shape.number])
        name = f"{lead}{row[shape.name]}" + (f"  … {more:,} more" if more else "")
        rows.append({**row, shape.name: name})
        for index, child in enumerate(reversed(inside.get(row[shape.number], []))):
            last = index == 0 and not more
            waiting.append(
                (child, under + (_LAST if last else _BRANCH), under + (_BELOW if last else _BESIDE))
            )
    return rows


def _say(form: Column, rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    return form.key == name or any(row.get(form.key) is not None for row in rows)


def _plain(form: Column, name: str) -> Column:
    """A name keeps its branch at the start, and is never dropped."""
    return (
        replace(form, rank=-1, flexible=True, cut="end", least=40, parts="text")
        if (form.key == name)
        else form
    )
