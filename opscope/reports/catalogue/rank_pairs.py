"""The report of what each rank sent to each other."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="rank_pairs",
    order=346,
    title="From rank to rank",
    holds=FRAMES["rank_pairs()"],
    frame=lambda profile: profile.rank_pairs(),
    empty="no all-to-all with sizes, and no message whose ranks and size are known",
)
