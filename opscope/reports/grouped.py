"""Reports that add up ops by op, layer, source line or dtype: one table for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from . import units
from .columns import columns
from .layout import Table
from .names import layer_patterns, short_source
from .report import Report, View

if TYPE_CHECKING:
    from opscope.profile import Profile

#: Where a row is of several of these, the column that counts them.
_COUNTED: Final = {"inputs": "shapes", "layer": "layers", "source": "sources", "op": "ops"}
#: The first to go where there is no room.
_RANKS: Final = {"source": 9, "kind": 8, "layer": 7, "flops": 5, "calls": 4, "running": 3}  # fmt: skip
#: Shares of the time that are nearly all, and rows that are shown whatever their share.
_ENOUGH: Final = 0.99
_FEW: Final = 5
#: Texts that say less than they take room where they are shorter.
_LEAST: Final = {"inputs": 34, "layer": 30, "op": 32, "source": 34}

#: A share of the time from which on a remark is worth its line.
WORTH: Final = 0.05

EMPTY: Final = "no ops in this profile: nothing annotated the program (opscope doctor FILE)"


def grouped(report: Report, profile: Profile, view: View) -> Table:
    """The largest by time, with the share of all that they have so far; where the view shows ``enough``
    no more of them than make up 99 %.

    Layers that differ in a number alone, such as the blocks of a transformer, are one.
    """
    by, top, key = str(report.by), view.top, report.holds.columns[0].name
    patterns = layer_patterns(profile.distinct("layer"))
    sizes: dict[str, int] = {}
    for pattern in patterns.values():
        sizes[pattern] = sizes.get(pattern, 0) + 1
    frame = profile.totals_by(by, layers=patterns)
    shown = frame if top is None else frame.head(top)
    if view.enough:
        shown = shown.head(max(int((shown["running"] < _ENOUGH).sum()) + 1, _FEW))
    rows = [_row(row, by, key, sizes) for row in shown.to_dicts()]
    keys = [name for name in report.shown if any(row.get(name) not in (None, "") for row in rows)]
    if not rows:
        return Table(report.title, columns([key]), (), (report.empty,))
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
    return Table(report.title, made, rows, notes)


def and_others(text: str, many: object) -> str:
    """``text and 3 others``, where there are 4 in all."""
    others = many - 1 if isinstance(many, int) else 0
    return f"{text} and {others:,} {'other' if others == 1 else 'others'}" if others > 0 else text


def _row(row: dict[str, Any], by: str, key: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    """A row as it is read: what it is of several of, with their number."""
    if row["reason"] is not None:
        return row | {key: f"({row['reason']})"}
    if row[key] is None:
        row = row | {key: f"(no {'dtypes' if by == 'dtype' else by})"}
    elif by == "op" and row["direction"] not in ("forward", "communication", None):
        if str(row["direction"]) not in str(row["op"]).lower():  # its name may say so
            row = row | {"op": f"{row['op']}, {row['direction']}"}
    elif by == "layer" and sizes.get(row["layer"], 1) > 1:
        row = row | {"layer": f"{row['layer']} ({sizes[row['layer']]:,})"}
    for name, count in _COUNTED.items():
        if count in row and row.get(name) is not None:
            text = row[name]
            if name == "source":
                text = short_source(text if row[count] == 1 else text.partition(" < ")[0])
            row = row | {name: and_others(units.text(text), row[count])}
    return row
