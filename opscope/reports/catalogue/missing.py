"""The report of the ops whose FLOPs or bytes are not known, and why."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="missing",
    order=250,
    title="Ops without known FLOPs or bytes",
    holds=FRAMES["missing_costs()"],
    frame=lambda profile: profile.missing_costs(),
    empty="none: the FLOPs and bytes of every op are known",
    aliases=("missing_costs",),
)
