"""A section as the terminal shows it: figures with units; a narrow terminal drops the least important
columns first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import polars as pl

from opscope.core.question import units
from opscope.core.question.layout import Column, Table

from .sections import Section

_FORMS: Final[dict[str, Callable[[object], str]]] = {
    "FLOPs": units.flop, "Bytes": units.size, "Attained FLOP/s": units.flop_rate,
    "Arithmetic Intensity (FLOP/B)": units.ratio,
}  # fmt: skip
#: Columns that a narrow terminal drops last.
_FIRST: Final = (
    "Op ID", "Kernel Name", "Op Type", "Name", "Iteration", "No. Calls", "# Calls",
    "Total GPU Time (ns)", "Total CPU Time (ns)", "GPU Duration (ns)", "Op Name", "Using TC",
    "Uses TC", "Direction", "Problem", "Recommendation",
)  # fmt: skip
_NAMES: Final = (
    "Op Name",
    "Kernel Name",
    "Long Kernel Name",
    "Name",
    "Stack Trace",
    "Problem",
    "Recommendation",
)


def shown(section: Section, top: int | None) -> Table:
    """Return the section as a table of at most ``top`` rows (None: all)."""
    notes = list(section.notes)
    if section.single:
        row = section.frame.row(0, named=True)
        rows = [{"name": name, "value": _form(name)(value)} for name, value in row.items()]
        columns = [Column("name", ""), Column("value", "", flexible=True)]
        return Table(section.title, columns, rows, notes, headings=False)
    frame = section.frame if top is None else section.frame.head(top)
    if len(frame) < len(section.frame):
        notes.append(f"{len(frame)} of {len(section.frame):,} rows; --top 0 shows all")
    if not len(section.frame) and not notes:
        notes.append("no rows")
    columns = [_column(name, index) for index, name in enumerate(frame.columns)]
    text = frame.with_columns(pl.col(pl.Categorical).cast(pl.String))
    return Table(section.title, columns, text.to_dicts(), notes)


def _form(name: str) -> Callable[[object], str]:
    if name in _FORMS:
        return _FORMS[name]
    if "Start" in name or "Stop" in name:
        return units.text
    if name.endswith("(ns)") or name == "Iteration Time Standard Deviation":
        return units.time
    if "%" in name:
        return _percent
    return units.text


def _percent(value: object) -> str:
    return units.share(value / 100 if isinstance(value, (int, float)) else None)


def _column(name: str, position: int) -> Column:
    is_first = name in _FIRST
    return Column(
        name,
        name.removesuffix(" (ns)"),
        _form(name),
        flexible=name in _NAMES,
        cut="start" if name in ("Op Name", "Name") else "end",
        rank=_FIRST.index(name) if is_first else len(_FIRST) + position,
    )
