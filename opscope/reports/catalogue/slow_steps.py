"""The report of slow steps, and what they had more of."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report
from opscope.reports.tables import with_step_notes

REPORT = Report(
    name="slow_steps",
    order=315,
    title="Slow steps",
    holds=FRAMES["slow_steps()"],
    frame=lambda profile: profile.slow_steps(),
    empty="no slow step among those seen (fewer than five steps of a process are not judged)",
    shown=[
        "step",
        "process",
        "time",
        "excess",
        "part",
        "part_excess",
        "op",
        "layer",
        "op_excess",
    ],
    table=with_step_notes,
)
