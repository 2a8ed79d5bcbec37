"""The table of a frame that is a tree, folded to the rows with the most time; the others are summed up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from .columns import columns
from .layout import Column, Table
from .report import Report, View

if TYPE_CHECKING:
    import polars as pl

#: The number of a row that stands for others.
_FOLDED: Final = -1
_BRANCH, _LAST, _BESIDE, _BELOW = "├ ", "└ ", "│ ", "  "
#: Columns that the row of folded rows has the sums of.
_SUMMED: Final = (
    *("share", "device_total", "host_total", "forward_part", "backward_part", "flops", "bytes"),
    *("at_peak", "kernels", "calls"),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns that make the tree: a row's number, its parent's, and its name."""

    number: str
    parent: str
    name: str


def folded(report: Report, frame: pl.DataFrame, view: View, shape: Shape) -> Table:
    """Return the rows with the most time and those around them, drawn as a tree.

    ``frame`` has each row after its parent, and numbers its rows from 0. Rows that are not shown are summed
    up in one row among their siblings.
    """
    forms = columns(report.shown, report.holds.columns, report.forms)
    if frame.is_empty():
        return Table(report.title, forms, (), (report.empty,))
    kept = _kept(frame, view.top, shape)
    rows = _rows(frame, kept, report.shown, shape)
    notes = []
    if len(kept) < len(frame):
        notes.append(f"{len(kept)} of {len(frame):,} rows; --top 0 shows all")
    made = [_plain(form, shape.name) for form in forms if _said(form, rows, shape.name)]
    return Table(report.title, made, rows, notes)


def _kept(frame: pl.DataFrame, top: int | None, shape: Shape) -> list[int]:
    """Return the numbers of the rows with the most time, and of those around them, in order."""
    if top is None or top >= len(frame):
        return list(range(len(frame)))
    most = frame.sort(
        "device_total", "host_total", "depth", descending=[True, True, False], nulls_last=True,
        maintain_order=True,
    )  # fmt: skip
    above = frame[shape.parent]
    kept: set[int] = set()
    for number in most[shape.number].head(top).to_list():
        here = number
        while here is not None and here not in kept:
            kept.add(here)
            here = above[here]
    return sorted(kept)


def _rows(
    frame: pl.DataFrame, kept: list[int], keys: Sequence[str], shape: Shape
) -> list[dict[str, Any]]:
    """Return the kept rows, each name behind its branch, and a row for the folded siblings of each."""
    import polars as pl

    shown = frame[kept]
    sums = [name for name in _SUMMED if name in keys]
    rest = (
        frame.filter(pl.col(shape.parent).is_in(kept) & ~pl.col(shape.number).is_in(kept))
        .group_by(shape.parent)
        .agg(
            pl.len().alias("many"),
            *(
                pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name)
                for name in sums
            ),
        )
        .to_dicts()
    )
    hidden: dict[int, dict[str, Any]] = {row[shape.parent]: row for row in rest}
    inside: dict[int | None, list[dict[str, Any]]] = {}
    for row in shown.select(list(dict.fromkeys([shape.number, shape.parent, *keys]))).to_dicts():
        inside.setdefault(row[shape.parent], []).append(row)
    found: list[dict[str, Any]] = []
    waiting: list[tuple[dict[str, Any], str, str]] = [
        (row, "", "") for row in reversed(inside.get(None, []))
    ]
    while waiting:
        row, lead, below = waiting.pop()
        found.append({**row, shape.name: f"{lead}{row[shape.name]}"})
        children = list(inside.get(row[shape.number], []))
        if (more := hidden.get(row[shape.number])) is not None:
            children.append({**more, shape.name: f"… {more['many']:,} more", shape.number: _FOLDED})
        for place, child in enumerate(reversed(children)):
            branch, under = (_LAST, _BELOW) if place == 0 else (_BRANCH, _BESIDE)
            waiting.append((child, below + branch, below + under))
    return found


def _said(form: Column, rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    return form.key == name or any(row.get(form.key) is not None for row in rows)


def _plain(form: Column, name: str) -> Column:
    """A name keeps its branch, at its start, and is never left out."""
    return (
        replace(form, rank=-1, flexible=True, cut="end", least=40, parts="text")
        if (form.key == name)
        else form
    )
