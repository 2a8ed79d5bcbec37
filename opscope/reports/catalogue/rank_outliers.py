"""The report of ranks that are unlike the others."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="rank_outliers",
    order=345,
    title="Ranks unlike the others",
    holds=FRAMES["rank_outliers()"],
    frame=lambda profile: profile.rank_outliers(),
    empty="no kernel that several ranks ran, and no clock, temperature or power that was sampled",
)
