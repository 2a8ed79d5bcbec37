"""The report of whole steps that light mode kept."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="light_steps",
    order=332,
    title="Slowest steps, by light mode",
    holds=FRAMES["light_steps()"],
    frame=lambda profile: profile.light_steps(),
    empty="light mode was off: opscope run --light, or opscope.init(light=True)",
    shown=[
        "rank",
        "step",
        "duration",
        "input_phase",
        "forward_phase",
        "backward_phase",
        "optimizer_phase",
        "collective_phase",
        "outside_phases",
    ],
    written=False,
)
