"""The report of what each rank sent and received."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="rank_loads",
    order=347,
    title="Load of ranks",
    holds=FRAMES["rank_loads()"],
    frame=lambda profile: profile.rank_loads(),
    empty="no all-to-all with sizes, and no message whose ranks and size are known",
)
