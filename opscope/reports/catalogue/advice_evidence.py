"""The evidence of the advice as rows."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="advice_evidence",
    order=267,
    title="Evidence of the advice",
    holds=FRAMES["advice_evidence()"],
    frame=lambda profile: profile.advice_evidence(),
    empty="no finding has evidence in rows",
    shown=(
        "number", "detector", "op", "kernel", "layer", "source", "count", "time", "inputs", "detail",
    ),
)  # fmt: skip
