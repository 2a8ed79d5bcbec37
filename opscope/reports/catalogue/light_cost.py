"""The report of what light mode itself took, and how well it knows that."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="light_cost",
    order=333,
    title="Light mode's own cost",
    holds=FRAMES["light_cost()"],
    frame=lambda profile: profile.light_cost(),
    empty="light mode was off: opscope run --light, or opscope.init(light=True)",
)
