"""Where the time went, for a person: by kind of work first, then by op, layer, source line or dtype."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from . import units
from .layout import Column, Table
from .names import kernel, layer_patterns

if TYPE_CHECKING:
    from opscope.profile import Profile

#: Reports that add up ops, by what they do so.
GROUPS: Final = {
    "by_op": "op",
    "by_layer": "layer",
    "by_source": "source",
    "by_dtype": "dtype",
}
_TITLES: Final = {
    "op": "Top ops, all shapes of each together",
    "layer": "Top layers",
    "source": "Top source lines",
    "dtype": "By dtypes",
}
_SHOWN: Final = {
    "op": ("op", "kind", "inputs", "layer", "flops", "source"),
    "layer": ("layer", "kind", "op", "flops", "source"),
    "source": ("source", "kind", "op", "layer", "flops"),
    "dtype": ("dtypes", "kind", "op", "layer", "flops"),
}
#: Where a row is of several of these, the column that counts them.
_COUNTED: Final = {"inputs": "shapes", "layer": "layers", "source": "sources", "op": "ops"}
_KEY: Final = {"op": "op", "layer": "layer", "source": "source", "dtype": "dtypes"}
#: The first to go where there is no room.
_RANKS: Final = {"source": 9, "kind": 8, "layer": 7, "flops": 5, "calls": 4, "running": 3}  # fmt: skip
#: Characters of the bar of what took all of the time.
_BAR: Final = 24
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"


def bar(share: object) -> str:
    """A share of one as a bar of at most 24 characters, to an eighth of one."""
    if not isinstance(share, float) or share <= 0:
        return ""
    whole, rest = divmod(round(min(share, 1.0) * _BAR * 8), 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")) or "▏"


def by_kind(profile: Profile, top: int | None = None) -> Table:
    """The kinds of work by their share of the time, each with the op that has most of it."""
    frame = profile.totals_by("kind")
    of = "CPU time" if profile.cpu_only else "device time"
    whole = int(frame["device_time"].sum())
    title = f"Where the time went: {units.time(whole)} of {of}, by kind of work"
    keys = [
        Column("share", "share", units.share),
        Column("bar", ""),
        Column("device_time", "time", units.time),
        Column("kind", "kind"),
        Column("calls", "calls" if profile.cpu_only else "kernels", units.count, rank=4),
        Column("op", "mostly", flexible=True, rank=3, least=24, parts="words"),
    ]
    if frame.is_empty():
        return Table(
            "Where the time went", keys, (), ("not known: no time of any op was recorded",)
        )
    rows = [
        row | {"bar": bar(row["share"]), "op": _and_others(kernel(row["op"]), row["ops"])}
        for row in (frame if top is None else frame.head(top)).to_dicts()
    ]
    return Table(title, keys, rows, _means(rows))


def _means(rows: list[dict[str, Any]]) -> list[str]:
    """What the kinds are that a name alone does not explain."""
    from opscope.core.perf.kinds import COPIES, NO_OP, OTHER, UNKNOWN, kinds

    told = {row["kind"] for row in rows if row["share"] >= _WORTH}
    return [f"{name}: {kinds()[name].means}" for name in (COPIES, OTHER, UNKNOWN, NO_OP) if name in told]  # fmt: skip


#: A share of the time from which on a remark is worth its line.
_WORTH: Final = 0.05


def _and_others(text: str, many: object) -> str:
    """``text and 3 others``, where there are 4 in all."""
    others = many - 1 if isinstance(many, int) else 0
    return f"{text} and {others:,} {'other' if others == 1 else 'others'}" if others > 0 else text


def grouped(profile: Profile, report: str, top: int | None = 20, enough: bool = False) -> Table:
    """One of ``GROUPS``: the largest by time, with the share of all that they have so far; with
    ``enough`` no more of them than make up 99 %.

    Layers that differ in a number alone, such as the blocks of a transformer, are one.
    """
    from .console import columns

    by = GROUPS[report]
    patterns = layer_patterns(profile.distinct("layer"))
    sizes: dict[str, int] = {}
    for pattern in patterns.values():
        sizes[pattern] = sizes.get(pattern, 0) + 1
    frame = profile.totals_by(by, layers=patterns)
    shown = frame if top is None else frame.head(top)
    if enough:
        shown = shown.head(max(int((shown["running"] < _ENOUGH).sum()) + 1, _FEW))
    rows = [_row(row, by, sizes) for row in shown.to_dicts()]
    keys = [key for key in _SHOWN[by] if any(row.get(key) not in (None, "") for row in rows)]
    if not rows:
        return Table(_TITLES[by], columns([_KEY[by]]), (), (EMPTY,))
    key = _KEY[by]
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
    return Table(_TITLES[by], made, rows, notes)


#: Shares of the time that are nearly all, and rows that are shown whatever their share.
_ENOUGH: Final = 0.99
_FEW: Final = 5
#: Texts that say less than they take room where they are shorter.
_LEAST: Final = {"inputs": 34, "layer": 30, "op": 32, "source": 34}

EMPTY: Final = "no ops in this profile: nothing annotated the program (opscope doctor FILE)"


def _row(row: dict[str, Any], by: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    """A row as it is read: what it is of several of, with their number."""
    key = _KEY[by]
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
            row = row | {name: _and_others(units.text(text), row[count])}
    return row


def short_source(frames: object) -> str:
    """The innermost line without its folders, and the next where that is in another file:
    ``train.py:42``, ``bert.py:364 < train.py:42``."""
    places = [
        place.strip('"').replace("\\", "/").rpartition("/")[2]
        for place in units.text(frames).split(" < ")[:2]
    ]
    files = {place.rpartition(":")[0] for place in places}
    return " < ".join(places[: len(files)])


def next_steps(profile: Profile) -> list[str]:
    """What to ask next, from what the summary and the kinds of work show."""
    row = profile.summary().to_dicts()[0]
    kinds = {one["kind"]: one["share"] for one in profile.totals_by("kind").to_dicts()}
    lines: list[str] = []
    if not kinds:
        return lines
    whole, without = row["device_time"], row["device_unattributed_time"]
    if whole and without is not None and without / whole >= _WORTH:
        lines.append(
            f"{units.share(without / whole)} of the time has no op: opscope doctor FILE says why, and how to"
            " capture it"
        )
    wall = row["wall_time"] if row["window_time"] is None else row["window_time"]
    busy, devices = row["device_busy"], row["devices"]
    if not profile.cpu_only and busy is not None and wall and devices:
        idle = 1 - busy / (wall * devices)
        if idle >= _IDLE:
            lines.append(
                f"the device is idle {units.share(idle)} of the time, as the program gives it nothing to do:"
                " faster kernels alone will not help"
            )
    if kinds.get("communication", 0) >= _WORTH:
        lines.append("--reports communication: how much of the communication other work hides")
    if {"matrix products", "attention", "convolution", "elementwise", "normalisation"} & set(kinds):
        lines.append("--reports roofline: how near each op comes to what the device can do")
    what = "shape, layer, source, dtype, range" + ("" if profile.cpu_only else ", kernel")
    lines.append(f"--by {what}: the same time, divided so")
    return lines


#: The device waits so much of the time that it is worth a line.
_IDLE: Final = 0.2
