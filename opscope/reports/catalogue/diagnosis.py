"""What bounds the steps, in words: the first lines of every first screen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from opscope.core.question import units
from opscope.core.question.layout import Column, Table
from opscope.frames import FRAMES
from opscope.reports.report import Report, View
from opscope.reports.tables import listed

if TYPE_CHECKING:
    import polars as pl

    from opscope.profile import Profile


def _told(report: Report, profile: Profile, view: View) -> Table:
    """A row for each finding and, below, its sentence in full, which no column holds.

    On the first screen only the answer has its sentences; the other findings are named.
    """
    frame = report.frame(profile)
    if view.first:
        return Table(report.title, [Column("what", "")], (), sentences=_answer(frame))
    found = frame.filter(frame["lost"].is_not_null() & (frame["finding"] != "healthy"))
    below = []
    for row in frame.to_dicts():
        below.append(f"  {_named(row)}: {units.text(row['text'])}")
        if row["to_try"] is not None:
            below.append(f"    try: {units.text(row['to_try'])}")
    made = listed(report, found, view)
    if found.is_empty():
        made = replace(made, footnotes=())
    return replace(made, footnotes=(*made.footnotes, *below))


def _named(row: dict[str, Any]) -> str:
    whose = "" if row["rank"] is None else f" (rank {row['rank']})"
    return f"{units.text(row['finding'])}{whose}"


def _answer(frame: pl.DataFrame) -> list[str]:
    """Return the first finding with its evidence and what to try, and the names of the others."""
    first, *others = frame.to_dicts()
    lines = [f"{_named(first)}: {units.text(first['text'])}"]
    if first["to_try"] is not None:
        lines.append(f"try: {units.text(first['to_try'])}")
    more = [row for row in others if row["finding"] != "cannot tell"]
    if more:
        named = [
            units.text(row["finding"])
            + ("" if row["share"] is None else f" ({units.share(row['share'])})")
            for row in more
        ]
        lines.append(f"also: {', '.join(named)}")
    if len(others) > 0:
        lines.append("all of it, and what cannot be told: --reports diagnosis")
    return lines


REPORT = Report(
    name="diagnosis",
    order=5,
    title="Diagnosis",
    holds=FRAMES["diagnosis()"],
    frame=lambda profile: profile.diagnosis(),
    empty="nothing was found",
    shown=["rank", "finding", "share", "lost"],
    table=_told,
    first=True,
    lean=True,
)
