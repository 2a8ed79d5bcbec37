"""What all findings of the advice save together."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="advice_combined",
    order=266,
    title="All advice together",
    holds=FRAMES["advice_combined()"],
    frame=lambda profile: profile.advice_combined(),
    empty="no finding",
    single=True,
)
