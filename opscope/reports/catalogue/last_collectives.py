"""The report of the last collective that each rank called."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="last_collectives",
    order=343,
    title="Last collective of each rank",
    holds=FRAMES["last_collectives()"],
    frame=lambda profile: profile.last_collectives(),
    empty="no collective whose group is known in this profile",
)
