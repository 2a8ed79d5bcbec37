"""The report of the critical path, piece by piece."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.critical import EMPTY, with_notes
from opscope.reports.report import Report

REPORT = Report(
    name="critical_path",
    order=545,
    title="Critical path, piece by piece",
    holds=FRAMES["critical_path()"],
    frame=lambda profile: profile.critical_path(categories=True),
    empty=EMPTY,
    shown=["start", "duration", "kind", "name", "op", "layer", "thread", "stream"],
    table=with_notes,
    written=False,
)
