"""What a notebook shows of a profile: where the time went, in numbers that a person reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, Final

import polars as pl

#: Ops shown; ``op_totals()`` has all.
_OPS: Final = 10
_COLUMNS: Final = ("op", "direction", "inputs", "layer", "source")
#: What of the summary is shown, and as what; the same where there is a GPU and where the CPU is the device.
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


def page(head: str, summary: Mapping[str, Any], ops: pl.DataFrame, device: str) -> str:
    """The profile's own line, its summary and the ops that took longest, as HTML; all text is escaped."""
    rows = [
        (label.format(device=device), readable(name, summary[name]))
        for name, label in _SUMMARY.items()
        if summary.get(name) is not None
    ]
    time = "device_time" if device == "the GPU" else "self_time"
    first = ops.head(_OPS)
    known = [name for name in _COLUMNS if first[name].null_count() < len(first)]
    table = [
        (readable("share", row["share"]), readable(time, row[time]), readable("calls", row["calls"]),
         *(row[name] or "" for name in known))
        for row in first.iter_rows(named=True)
    ]  # fmt: skip
    more = f"<p>{len(first)} of {len(ops):,} ops; op_totals() has all</p>" if table else ""
    return (
        f"<p>{escape(head)}</p>{_table((), rows)}"
        + (_table(("share", "time", "calls", *known), table) if table else "")
        + more
    )


def readable(name: str, value: Any) -> str:
    """A value of a column of that name, with its unit; times are nanoseconds."""
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


def _table(names: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"<table>{f'<tr>{head}</tr>' if head else ''}{body}</table>"


def _cell(text: str) -> str:
    """Numbers stay at the right, where notebooks have all; text is read from the left."""
    left = "" if text[:1].isdigit() else ' style="text-align:left"'
    return f"<td{left}>{escape(text)}</td>"
