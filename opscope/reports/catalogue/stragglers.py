"""The report of the ranks that enter collectives last."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="stragglers",
    order=330,
    title="Stragglers",
    holds=FRAMES["stragglers()"],
    frame=lambda profile: profile.stragglers(),
    empty="no collective in which the times of two ranks are known: load the traces of all ranks together",
)
