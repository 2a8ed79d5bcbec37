"""The report of the dimensions of each DeviceMesh."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="meshes",
    order=230,
    title="Device meshes",
    holds=FRAMES["meshes()"],
    frame=lambda profile: profile.meshes(),
    empty="no DeviceMesh was recorded",
)
