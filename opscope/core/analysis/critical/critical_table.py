"""The table of the reports of the critical path, with the path's assumptions below it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from opscope.core.analysis.answers import Answers
from opscope.core.question.layout import Table
from opscope.core.question.record import Report, View
from opscope.core.question.tables import listed

EMPTY: Final = "nothing in this profile has times, or records are missing"
_PREFIX: Final = "critical path: "


def with_notes(report: Report, profile: Answers, view: View) -> Table:
    """Return the report's table with the notes on what was inferred below it."""
    frame = report.frame(profile)
    table = listed(report, frame, view)
    return replace(table, footnotes=[*table.footnotes, *notes(profile)])


def notes(profile: Answers) -> list[str]:
    """Return what the profile's critical path infers or lacks, one sentence each, with the number of
    cases."""
    return [
        f"{subject.removeprefix(_PREFIX)} ({count:,})"
        for subject, count in profile.notes(critical_path=True)
        .select("what", "how_many")
        .iter_rows()
        if subject.startswith(_PREFIX)
    ]
