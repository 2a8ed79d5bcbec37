"""What opscope itself took while it recorded."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="own_costs",
    order=260,
    title="opscope itself",
    holds=FRAMES["own_costs()"],
    frame=lambda profile: profile.own_costs(),
    empty="not timed",
)
