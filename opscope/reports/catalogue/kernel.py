"""The report of kernels by total time, the longest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.frames import FRAMES
from opscope.reports.report import Report, View
from opscope.reports.tables import listed, running

if TYPE_CHECKING:
    from opscope.core.question.layout import Table
    from opscope.profile import Profile


def kernels(report: Report, profile: Profile, view: View) -> Table:
    """Return the kernels, each with the share of its row and of all rows up to it."""
    frame = report.frame(profile).sort("total", descending=True, nulls_last=True)
    return listed(report, running(frame), view)


REPORT = Report(
    name="kernel",
    order=110,
    title="Top kernels",
    holds=FRAMES["kernel_totals()"],
    frame=lambda profile: profile.kernel_totals(),
    empty="no kernels in this profile: no GPU was used, or kernels were not captured",
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
    without_ops="by_op",
    aliases=("kernels",),
    lean=True,
)
