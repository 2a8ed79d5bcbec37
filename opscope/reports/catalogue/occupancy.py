"""The report of kernels by name: blocks per multiprocessor, occupancy and what limits it, Tensor Cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.core.question.layout import Table
from opscope.frames import FRAMES
from opscope.reports.device_columns import FORMS
from opscope.reports.report import Report, View
from opscope.reports.tables import listed

if TYPE_CHECKING:
    from opscope.profile import Profile


def occupancy(report: Report, profile: Profile, view: View) -> Table:
    """Return the kernels, with the reasons why some have no occupancy."""
    frame = report.frame(profile)
    table = listed(report, frame, view)
    reasons = frame["occupancy_reason"].drop_nulls().unique().sort()
    notes = [*table.footnotes, *(f"no occupancy of some kernels: {why}" for why in reasons)]
    return Table(table.title, table.columns, table.rows, notes)


REPORT = Report(
    name="occupancy",
    order=410,
    title="Occupancy by kernel",
    holds=FRAMES["kernel_occupancy()"],
    frame=lambda profile: profile.kernel_occupancy(),
    empty="no kernels in this profile: no GPU was used, or kernels were not captured",
    shown=[
        "share",
        "total",
        "calls",
        "name",
        "op",
        "blocks_per_sm",
        "theoretical_occupancy",
        "achieved_occupancy",
        "limited_by",
        "tensor_core",
        "waves",
        "tail_share",
    ],
    table=occupancy,
    forms=FORMS,
    gpu_only=True,
)
