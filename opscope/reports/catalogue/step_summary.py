"""The report of what steps usually take, and how much that varies."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report
from opscope.reports.tables import with_step_notes

REPORT = Report(
    name="step_summary",
    order=305,
    title="Steps, usual",
    holds=FRAMES["step_summary()"],
    frame=lambda profile: profile.step_summary(),
    empty="no steps, and nothing of the host: opscope.step() or a callback marks steps",
    shown=[
        "process",
        "part",
        "steps",
        "share",
        "median",
        "mad",
        "p10",
        "p90",
        "max",
        "slow_steps",
        "left_out",
        "warm_up_steps",
    ],
    table=with_step_notes,
)
