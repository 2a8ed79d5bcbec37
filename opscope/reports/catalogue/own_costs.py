"""The report of the time that opscope itself took while it recorded."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="own_costs",
    order=260,
    title="Time of opscope itself",
    holds=FRAMES["own_costs()"],
    frame=lambda profile: profile.own_costs(),
    empty="not known: opscope did not record this profile, or did not time itself",
)
