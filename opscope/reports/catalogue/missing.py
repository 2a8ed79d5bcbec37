"""The ops whose FLOPs or bytes are not known, and why."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="missing",
    order=250,
    title="Without known cost",
    holds=FRAMES["missing_costs()"],
    frame=lambda profile: profile.missing_costs(),
    empty="nothing: all is known",
    aliases=("missing_costs",),
)
