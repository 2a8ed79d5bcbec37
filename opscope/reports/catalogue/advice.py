"""What to change in the program, and what that would save."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from opscope.core.question import units
from opscope.core.question.layout import Table
from opscope.frames import FRAMES
from opscope.reports import advised
from opscope.reports.report import Report, View
from opscope.reports.tables import listed

if TYPE_CHECKING:
    import polars as pl

    from opscope.profile import Profile


def table_of(report: Report, frame: pl.DataFrame, combined: pl.DataFrame, view: View) -> Table:
    """A row for each finding and, below, its sentences in full, which no column holds."""
    import polars as pl  # the help loads this module without it

    found = frame.filter(pl.col("outcome") == "found")
    shown = found if view.top is None else found.head(view.top)
    below = [line for row in shown.to_dicts() for line in advised.lines(row)]
    if len(found):
        below.insert(0, units.text(advised.together(combined.row(0, named=True))))
    below += [units.text(line) for line in advised.rest(frame)]
    made = listed(report, found, view)
    if frame.is_empty():
        return made
    notes = made.footnotes if len(found) else ("no detector found anything to change",)
    return replace(made, footnotes=(*notes, *below))


def _table(report: Report, profile: Profile, view: View) -> Table:
    return table_of(report, report.frame(profile), profile.advice_combined(), view)


REPORT = Report(
    name="advice",
    order=265,
    title="Advice",
    holds=FRAMES["advice()"],
    frame=lambda profile: profile.advice(),
    empty="no detector is installed",
    shown=("number", "detector", "time", "saving", "saving_share", "saving_most", "confidence"),
    table=_table,
)
