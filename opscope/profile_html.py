"""The HTML that a notebook shows for a profile: its summary and the ops that took the most time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, Final

import polars as pl

#: Number of ops shown; ``op_totals()`` has all of them.
_OPS: Final = 10
_COLUMNS: Final = ("op", "direction", "inputs", "layer", "source")
#: The columns of the summary that are shown, with their labels, for a GPU and for the CPU as the device.
_SUMMARY: Final[Mapping[str, str]] = {
    "wall_time": "wall time",
    "device_time": "time of {device}",
    "device_attributed_time": "with an op",
    "device_unattributed_time": "without an op",
    "flops_share": "with known FLOPs",
    "steps": "steps",
    "processes": "processes",
    "own_time": "opscope itself",
}


def page(
    head: str,
    summary: Mapping[str, Any],
    ops: pl.DataFrame,
    device: str,
    styled: bool = True,
    widest: int = 1_000,
) -> str:
    """Return the profile's line ``head``, its summary and the ops that took longest, as escaped HTML.

    ``styled``: cells are aligned by style attributes, which a page with a strict content policy refuses.
    ``widest``: characters of a cell, and of the line, at most.
    """
    rows = [
        (label.format(device=device), readable(name, summary[name]))
        for name, label in _SUMMARY.items()
        if summary.get(name) is not None
    ]
    head = _cut(head, widest)
    time = "device_time" if device == "the GPU" else "self_time"
    first = ops.head(_OPS)
    names = [name for name in _COLUMNS if first[name].null_count() < len(first)]
    table = [
        (readable("share", row["share"]), readable(time, row[time]), readable("calls", row["calls"]),
         *(_cut(row[name] or "", widest) for name in names))
        for row in first.iter_rows(named=True)
    ]  # fmt: skip
    more = f"<p>{len(first)} of {len(ops):,} ops; op_totals() has all</p>" if table else ""
    return (
        f"<p>{escape(head)}</p>{_table((), rows, styled)}"
        + (_table(("share", "time", "calls", *names), table, styled) if table else "")
        + more
    )


def readable(name: str, value: Any) -> str:
    """Return a value of the column ``name`` with its unit, as text; times are given in ns."""
    if value is None:
        return ""
    if name.endswith("share"):
        return f"{value:.1%}"
    if not name.endswith("time"):
        return f"{value:,}"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if value >= size:
            number = value / size
            return f"{number:,.{2 if number < 10 else 1 if number < 100 else 0}f} {unit}"
    return f"{value} ns"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _table(names: Iterable[str], rows: Iterable[Iterable[str]], styled: bool) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(_cell(text, styled) for text in row) + "</tr>" for row in rows)
    return f"<table>{f'<tr>{head}</tr>' if head else ''}{body}</table>"


def _cell(text: str, styled: bool) -> str:
    """Return one cell. Notebooks align every cell right; cells that do not begin with a digit go left."""
    left = "" if not styled or text[:1].isdigit() else ' style="text-align:left"'
    return f"<td{left}>{escape(text)}</td>"
