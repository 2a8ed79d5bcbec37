"""The report of the phases of each step, on the host and on the device."""

from __future__ import annotations

from opscope.core.question import units
from opscope.core.question.layout import Column
from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="step_phases",
    order=310,
    title="Phases of steps",
    holds=FRAMES["step_phases()"],
    frame=lambda profile: profile.step_phases(),
    empty="no steps, and nothing of the host: opscope.step() or a callback marks steps",
    forms=[Column("device_time", "device time", units.time)],
    written=False,
)
