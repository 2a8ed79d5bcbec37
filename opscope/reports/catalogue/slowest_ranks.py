"""The report of the slowest rank of each step."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="slowest_ranks",
    order=341,
    title="Slowest rank by step",
    holds=FRAMES["slowest_ranks()"],
    frame=lambda profile: profile.slowest_ranks(),
    empty="no step that several ranks have: load the traces of all ranks together",
)
