"""What to change in the program, and what that would save at most."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from opscope.frames import FRAMES
from opscope.reports import units
from opscope.reports.layout import Table
from opscope.reports.report import Report, View
from opscope.reports.tables import listed

if TYPE_CHECKING:
    from opscope.profile import Profile


def advised(report: Report, profile: Profile, view: View) -> Table:
    """A row for each finding and, below, its sentences in full, which no column holds."""
    frame = report.frame(profile)
    below = []
    for row in frame.to_dicts() if view.top is None else frame.head(view.top).to_dicts():
        sentences = {"": row["finding"] or row["reason"], "where": row["evidence"]}
        sentences |= {"change": row["recommendation"], "saving": row["reasoning"]}
        for what, text in sentences.items():
            if text:
                below.append(
                    f"  {what}: {units.text(text)}"
                    if what
                    else f"{units.text(row['detector'])}: {units.text(text)}"
                )
    made = listed(report, frame, view)
    return replace(made, footnotes=(*made.footnotes, *below))


REPORT = Report(
    name="advice",
    order=265,
    title="Advice",
    holds=FRAMES["advice()"],
    frame=lambda profile: profile.advice(),
    empty="no detector is installed",
    shown=("detector", "outcome", "time", "saving_most", "confidence"),
    table=advised,
)
