"""The table of the reports that add up time by op, layer, source line or dtype."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.totals import distinct_texts
from opscope.core.question import units
from opscope.core.question.forms import columns
from opscope.core.question.layout import Table
from opscope.core.question.names import layer_patterns, short_source
from opscope.core.question.record import Report, View

#: For each of these columns, the column with the number of distinct values in a row.
_COUNTED: Final = {"inputs": "shapes", "layer": "layers", "source": "sources", "op": "ops"}
#: Rank of columns: those with a high rank are dropped first if the table is too wide; 80 characters fit calls
#: and FLOPs.
_RANKS: Final = {
    "source": 9, "kind": 8, "layer": 7, "inputs": 6, "running": 5, "flops": 4, "calls": 3,
}  # fmt: skip
#: The share of the time at which a table may end, and its least number of rows.
_ENOUGH: Final = 0.99
_FEW: Final = 5
#: Least widths, in characters, for these texts; with less, they are dropped.
_LEAST: Final = {"inputs": 34, "layer": 30, "op": 32, "source": 34}

#: The least share of the time that gets a remark.
WORTH: Final = 0.05

EMPTY: Final = "no ops in this profile: the program was not annotated (opscope doctor FILE)"


def grouped(report: Report, profile: Answers, view: View) -> Table:
    """Return the largest rows by time, each with the share of all rows up to it.

    If ``view.enough``, the table ends once its rows make up 99 % of the time. Layers that differ only in
    a number, such as the blocks of a transformer, share one row.
    """
    by, top, key = str(report.by), view.top, report.holds.columns[0].name
    patterns = layer_patterns(distinct_texts(profile, "layer"))
    sizes: dict[str, int] = {}
    for pattern in patterns.values():
        sizes[pattern] = sizes.get(pattern, 0) + 1
    frame = profile.totals_by(by, layers=patterns)
    if by == "op":  # ops that run both inside and outside a forward pass
        plain = frame.filter(pl.col("direction").cast(pl.String).fill_null("forward") == "forward")
        sizes = dict(plain.group_by(pl.col("op").cast(pl.String)).len().rows())
    shown = frame if top is None else frame.head(top)
    if view.enough:
        shown = shown.head(max(int((shown["running"] < _ENOUGH).sum()) + 1, _FEW))
    rows = [_row(row, by, key, sizes) for row in shown.to_dicts()]
    keys = [name for name in report.keys if any(row.get(name) not in (None, "") for row in rows)]
    if not rows:
        return Table(report.heading, columns([key]), (), (report.no_rows,))
    made = [
        replace(
            column,
            rank=-1 if column.key == key else _RANKS.get(column.key, 0),
            least=_LEAST.get(column.key, column.least),
        )
        for column in columns(["share", "running", "device_time", "calls", *keys])
    ]
    notes = []
    if len(shown) < len(frame):
        notes.append(f"{len(shown)} of {len(frame):,} rows; --top 0 shows all")
    if any(row["flops"] is None for row in rows if not row["reason"]):
        notes.append(f"{units.UNKNOWN} is not known: opscope doctor FILE says why")
    if view.enough and notes:
        notes = ["; ".join(notes)]
    return Table(report.heading, made, rows, notes)


def and_others(text: str, count: object) -> str:
    """Return ``text and 3 others`` if ``count`` is 4; the text alone if it is 1."""
    others = count - 1 if isinstance(count, int) else 0
    return f"{text} and {others:,} {'other' if others == 1 else 'others'}" if others > 0 else text


def _row(row: dict[str, Any], by: str, key: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return a row for display: of each column the most frequent value, with the number of other values."""
    if row["reason"] is not None:
        return row | {key: f"({row['reason']})"}
    if row[key] is None:
        row = row | {key: f"(no {'dtypes' if by == 'dtype' else by})"}
    elif by == "op" and row["direction"] not in ("forward", "communication", None):
        if str(row["direction"]) not in str(row["op"]).lower():  # the op's name may contain it
            row = row | {"op": f"{row['op']}, {row['direction']}"}
    elif by == "op" and row["direction"] is None and sizes.get(row["op"], 1) > 1:
        row = row | {"op": f"{row['op']}, outside"}
    elif by == "layer" and sizes.get(row["layer"], 1) > 1:
        row = row | {"layer": f"{row['layer']} ({sizes[row['layer']]:,})"}
    for name, count in _COUNTED.items():
        if count in row and row.get(name) is not None:
            text = row[name]
            if name == "source":
                text = short_source(text if row[count] == 1 else text.partition(" < ")[0])
            row = row | {name: and_others(units.text(text), row[count])}
    return row
