"""The wall time as the first screen shows it: one process, with the smallest and largest values of the other
processes beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from opscope.core.analysis.ops.ops import served_words
from opscope.core.question import units
from opscope.core.question.layout import Column, Table
from opscope.core.question.names import short_source
from opscope.core.question.record import Report, View
from opscope.core.question.tables import listed

#: The part after opscope stopped, whose row has the exit status.
NO_MORE: Final = "after opscope"
_WELL: Final = "exit status 0"
#: The sections to which the terminal gives other names.
_NAMES: Final = {
    "before": "before the first op",
    "building": "building, before the first step",
    "run": "the run: no steps are known",
    "checkpoint": "checkpoints",
    "between": "between these",
    "after": "after the last step",
    "before opscope": "not seen: before opscope began",
    "after opscope": "not seen: after opscope stopped",
    "while opscope paused": "not seen: between its recordings",
}
#: Rows with a smaller share are merged, if there are several.
SMALL: Final = 0.005
#: With more rows than these, rows with larger shares are merged too.
_ROWS: Final = 7
_LARGER: Final = (SMALL, 0.01, 0.02, 0.05)
#: If every phase is a smaller part of the run than this, the phases may have no rows of their own.
_SHORT: Final = 0.05
REST: Final = "the rest"
#: The most failed processes that are named.
_LISTED: Final = 4
#: Sections that are divided into parts.
_DIVIDED: Final = ("steps", "run")
_UNSEEN: Final = {
    "before opscope": "the interpreter's start, and opscope's own",
    "after opscope": "writing the recording, and the interpreter's exit",
}


def wall_time_table(report: Report, profile: Any, view: View) -> Table:
    """Return all rows or, on the first screen, one process's rows beside the smallest and largest value of
    the others. On the first screen it is empty if it would only repeat the length of the trace.
    """
    frame = report.frame(profile)
    if not view.first:
        return listed(report, frame, view)
    timed = frame.filter(pl.col("time").is_not_null())
    if timed["section"].eq("run").all() and not timed["outside_ops"].sum():
        return Table(report.title, [Column("what", "")], ())
    process = main_process(frame)
    mine, rest = (frame.filter((pl.col("process") == process) == own) for own in (True, False))
    steps = (pl.col("section") == "steps").any()
    alike = rest.filter(steps.over("process") == mine.select(steps).item())
    unknown = mine.filter(pl.col("time").is_null())
    columns = [
        Column("share", "share", units.share),
        Column("time", "time", units.time),
        Column("what", "where", flexible=True, least=32, rank=-1),
        Column("outside", "outside any op"),
        Column("remark", "", flexible=True, least=20, rank=1),
    ]
    rows = [_row(row) for row in _few(_with_steps(mine))]
    served = served_words(profile)
    if served is not None:
        run = _NAMES["run"]
        rows = [row | {"what": row["what"].replace(run, f"the run: {served}")} for row in rows]
    extent = f"{units.time(int(mine['time'].sum()))}, {_extent(unknown)}"
    notes = list(dict.fromkeys(map(_unknown, unknown.to_dicts())))
    if len(unknown) == 2:
        notes = [f"not known: what was before and after; {_reasons(unknown)}"]
    notes += _failures(rest)
    title = report.title
    if len(rest):
        rank = mine["rank"][0]
        title += f" of process {process}" if rank is None else f" of rank {rank}"
    if len(alike):
        spread = _spread(alike)
        rows = [row | {"others": spread.get(row["key"], "")} for row in rows]
        columns.insert(2, Column("others", "others"))
        least = "" if alike["process"].n_unique() == 1 else "the least and the most of "
        notes.append(f"others: {least}{_processes(alike)}; each: --reports wall_time")
    if len(rest) > len(alike):
        less = rest.join(alike, on="process", how="anti")
        notes.append(f"{_processes(less)} without steps: --reports wall_time")
    return Table(f"{title}: {extent}", columns, rows, notes)


def _unknown(row: Mapping[str, Any]) -> str:
    status = f"; {row['detail']}" if row["section"] == NO_MORE and row["detail"] else ""
    return f"{_named(row)}: {row['reason']}{status}"


def _failures(rest: pl.DataFrame) -> list[str]:
    """Return a line on other processes with an exit status other than 0."""
    rows = rest.filter(pl.col("section") == NO_MORE, pl.col("detail").ne(_WELL)).to_dicts()
    who = [
        f"{row['detail']} of {'process' if row['rank'] is None else 'rank'}"
        f" {row['process'] if row['rank'] is None else row['rank']}"
        for row in rows
    ]
    shown = who if len(who) <= _LISTED else [*who[:_LISTED], f"{len(who) - _LISTED} more"]
    return [", ".join(shown)] if who else []


def _processes(frame: pl.DataFrame) -> str:
    count = frame["process"].n_unique()
    return units.counted(count, "other process", "other processes")


def main_process(frame: pl.DataFrame) -> int | None:
    """Return the process that the first screen shows: one with steps, then the lowest rank, then the most
    time."""
    first = (
        frame.group_by("process", maintain_order=True)
        .agg(
            (pl.col("section") == "steps").any().alias("stepping"),
            pl.col("rank").first(),
            pl.col("time").sum(),
        )
        .sort(
            "stepping",
            "rank",
            "time",
            "process",
            descending=[True, False, True, False],
            nulls_last=True,
        )
    )
    return first["process"][0]  # type: ignore[no-any-return]


def _reasons(unknown: pl.DataFrame) -> str:
    return "; ".join(unknown["reason"].unique(maintain_order=True))


def _extent(unknown: pl.DataFrame) -> str:
    lacks = set(unknown["section"])
    if not lacks:
        return "from the process's start to its exit"
    if len(lacks) == 2:
        return "from the first event to the last"
    return "from the process's start on" if "after opscope" in lacks else "to the process's exit"


def _with_steps(mine: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the known rows; before the parts of the steps, a row with their total is inserted."""
    rows: list[dict[str, Any]] = []
    timed = mine.filter(pl.col("time").is_not_null()).to_dicts()
    for row in timed:
        if row["part"] is not None and not any(
            row["section"] == other["section"] for other in rows
        ):
            parts = [other for other in timed if other["section"] == row["section"]]
            outside = [other["outside_ops"] for other in parts if other["outside_ops"] is not None]
            rows.append(
                row
                | {"part": None, "time": sum(other["time"] for other in parts), "line": None}
                | {"share": sum(other["share"] or 0 for other in parts)}
                | {"outside_ops": sum(outside) if outside else None}
            )
            if len(parts) == 1:
                continue
        rows.append(row)
    return rows


def _few(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return at most as many rows as fit on the first screen, merging only small ones. Where the steps are a
    small part of the run, their row says the phases' shares if that leaves rows for other sections."""
    beside = _with_phases(rows)
    for small in _LARGER:
        shown = _folded(rows, small)
        if len(shown) > _ROWS:
            shown = _folded(beside, small)
        if len(shown) <= _ROWS:
            break
    is_phase = any(row["part"] not in (None, REST) for row in shown)
    return shown if is_phase else _folded(beside, small)


def _with_phases(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows without the phases of short steps, whose row says their shares of the steps."""
    parts = sorted(
        (row for row in rows if row["part"] is not None), key=lambda row: -int(row["time"])
    )
    total = sum(row["time"] for row in parts)
    if not total or (parts[0]["share"] or 0) > _SHORT:
        return rows
    phases = ", ".join(f"{row['part']} {units.share(row['time'] / total)}" for row in parts)
    return [
        row | {"detail": phases} if row["section"] == parts[0]["section"] else row
        for row in rows
        if row["part"] is None
    ]


def _folded(rows: list[dict[str, Any]], small_share: float) -> list[dict[str, Any]]:
    """Return the rows with small rows of one kind (sections, parts of the steps) merged."""

    def _is_small(row: Mapping[str, Any]) -> bool:
        return (row["share"] or 0) < small_share

    short = [row["section"] for row in rows if row["part"] is None and _is_small(row)]
    rows = [row for row in rows if row["part"] is None or row["section"] not in short]
    for is_part in (False, True):
        small = [
            row
            for row in rows
            if (row["part"] is not None) == is_part
            and _is_small(row)
            and (is_part or row["section"] not in _DIVIDED)
        ]
        if len(small) < 2:
            continue
        outside = [row["outside_ops"] for row in small if row["outside_ops"] is not None]
        rest = dict.fromkeys(small[0]) | {
            "section": small[0]["section"],
            "part": REST if is_part else None,
            "names": ", ".join(row["part"] or _named(row) for row in small),
            "time": sum(row["time"] for row in small),
            "share": sum(row["share"] or 0 for row in small),
            "outside_ops": sum(outside) if outside else None,
        }
        # the parts stay below their steps; other small sections come last
        parts = [index for index, row in enumerate(rows) if row["part"] is not None]
        index = parts[-1] + 1 if is_part else len(rows)
        rows = [row for row in [*rows[:index], rest, *rows[index:]] if row not in small]
    return rows


def _named(row: Mapping[str, Any]) -> str:
    name: str = row["section"]
    return _NAMES.get(name, name)


def _row(row: dict[str, Any]) -> dict[str, Any]:
    names, part, section = row.get("names"), row["part"], row["section"]
    label = _named(row)
    if names is not None:
        label = f"  {REST}" if part else REST
    elif part is not None:
        label = f"  {part}"
    elif row["count"] and section == "steps":
        label = units.counted(row["count"], "step")
    remark = names or row["detail"] or ""
    if not names and section in _UNSEEN:
        remark = _UNSEEN[section] + ("" if remark in ("", _WELL) else f"; {remark}")
    if row["line"] is not None:
        remark = f"{short_source(row['line'])} {units.time(row['line_time'])}"
    elif section == "compiling" and names is None and row["count"]:
        remark = units.counted(row["count"], "program")
    outside = row["outside_ops"]
    return {
        "key": REST if names else part or section,
        "share": row["share"],
        "time": row["time"],
        "what": label,
        "outside": units.time(outside) if outside else "",
        "remark": remark,
    }


def _spread(others: pl.DataFrame) -> dict[str, str]:
    """Return for each displayed name the smallest and the largest value of the other processes."""
    times: dict[str, dict[int, int]] = {}
    for row in others.filter(pl.col("time").is_not_null()).to_dicts():
        for key in filter(None, (row["part"], row["section"])):
            of = times.setdefault(key, {})
            of[row["process"]] = of.get(row["process"], 0) + row["time"]
    return {
        name: units.time(min(of.values()))
        if min(of.values()) == max(of.values())
        else f"{units.time(min(of.values()))} to {units.time(max(of.values()))}"
        for name, of in times.items()
    }
