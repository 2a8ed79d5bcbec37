"""The report of all steps of a training, by phase, as light mode measured them."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="light",
    order=331,
    title="Steps, by light mode",
    holds=FRAMES["light()"],
    frame=lambda profile: profile.light(),
    empty="light mode was off: opscope run --light, or opscope.init(light=True)",
    shown=[
        "rank",
        "phase",
        "steps",
        "total",
        "share",
        "mean",
        "median",
        "p90",
        "p99",
        "max",
        "reason",
    ],
)
