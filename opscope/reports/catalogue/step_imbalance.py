"""The report of how evenly ranks work in a step."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="step_imbalance",
    order=340,
    title="Step imbalance",
    holds=FRAMES["step_imbalance()"],
    frame=lambda profile: profile.step_imbalance(),
    empty="no step that two processes have in common: load the traces of all ranks together",
)
