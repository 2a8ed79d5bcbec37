"""What is wrong with a training, in words, as far as light mode shows."""

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


def _told(report: Report, profile: Profile, view: View) -> Table:
    """A row for each finding and, below, its sentence in full, which no column holds."""
    frame = report.frame(profile)
    found = frame.filter(frame["finding"] != "cannot tell")
    below = []
    for row in frame.to_dicts():
        whose = "" if row["rank"] is None else f" (rank {row['rank']})"
        below.append(f"  {units.text(row['finding'])}{whose}: {units.text(row['text'])}")
    made = listed(report, found, view)
    return replace(made, footnotes=(*made.footnotes, *below))


REPORT = Report(
    name="diagnosis",
    order=329,
    title="Diagnosis",
    holds=FRAMES["diagnosis()"],
    frame=lambda profile: profile.diagnosis(),
    empty="light mode was off: opscope run --light, or opscope.init(light=True)",
    shown=["rank", "finding", "share", "lost"],
    table=_told,
)
