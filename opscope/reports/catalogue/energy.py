"""The report of the energy that each GPU took, and that of a step."""

from __future__ import annotations

from opscope.core.question import units
from opscope.core.question.layout import Column
from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="energy",
    order=566,
    title="Energy of GPUs",
    holds=FRAMES["energy()"],
    frame=lambda profile: profile.energy(),
    empty="no GPU's energy or power was sampled: that needs NVML (opscope[gpu]) and an NVIDIA GPU",
    forms=[
        Column("energy", "energy [J]", units.ratio),
        Column("power", "power [W]", units.ratio),
        Column("max_power", "max power [W]", units.ratio),
        Column("step_energy", "J/step", units.ratio),
    ],
)
