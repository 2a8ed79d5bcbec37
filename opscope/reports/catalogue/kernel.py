"""The kernels by total time, most first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.frames import FRAMES
from opscope.reports.report import Report, View
from opscope.reports.tables import listed, running

if TYPE_CHECKING:
    from opscope.profile import Profile
    from opscope.reports.layout import Table


def kernels(report: Report, profile: Profile, view: View) -> Table:
    """The kernels, with the shares of each row and all above it."""
    frame = report.frame(profile).sort("total", descending=True, nulls_last=True)
    return listed(report, running(frame), view)


REPORT = Report(
    name="kernel",
    order=110,
    title="Top kernels",
    holds=FRAMES["kernel_totals()"],
    frame=lambda profile: profile.kernel_totals(),
    empty="no kernels in this profile: it was taken without a GPU, or kernels were not captured",
    shown=[
        "share",
        "running",
        "total",
        "calls",
        "mean",
        "name",
        "op",
        "tensor_core",
        "flops",
        "bytes",
    ],
    table=kernels,
    by="kernel",
    gpu_only=True,
    aliases=("kernels",),
    lean=True,
)
