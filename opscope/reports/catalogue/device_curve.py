"""The report of how each device was used over time, in a hundred parts of its window."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.device_columns import FORMS
from opscope.reports.report import Report

REPORT = Report(
    name="device_curve",
    order=405,
    title="Use of the devices over time",
    holds=FRAMES["device_curve()"],
    frame=lambda profile: profile.device_curve(),
    empty="no kernels in this profile: no GPU was used, or kernels were not captured",
    shown=[
        "process",
        "device",
        "start",
        "gpu_utilization",
        "sm_efficiency",
        "achieved_occupancy",
        "tensor_core_share",
    ],
    written=False,
    forms=FORMS,
    gpu_only=True,
)
