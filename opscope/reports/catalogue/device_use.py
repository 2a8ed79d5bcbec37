"""The report of how each device was used: utilization, SM efficiency, occupancy, Tensor Core time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from opscope.core.question import units
from opscope.core.question.layout import Table
from opscope.frames import FRAMES
from opscope.reports.device_columns import FORMS
from opscope.reports.report import Report, View
from opscope.reports.tables import listed

if TYPE_CHECKING:
    from opscope.profile import Profile

#: What a figure that is not known is called, by its column.
_KNOWN: Final = (
    ("grid_known", "SM efficiency is a lower bound: the grids of {} of kernel time are known"),
    ("occupancy_known", "the occupancies are those of {} of kernel time"),
)


def device_use(report: Report, profile: Profile, view: View) -> Table:
    """Return the devices, with what the figures mean and what is missing for them."""
    frame = report.frame(profile)
    table = listed(report, frame, view)
    notes = list(table.footnotes)
    if len(frame):
        notes.append(
            "estimates from how kernels were launched: SM efficiency (multiprocessors that have a block) and "
            "occupancy (warps that they hold); Tensor Core time is of kernels whose name or op proves it"
        )
        for column, text in _KNOWN:
            least = frame[column].min()
            if isinstance(least, float) and 0 < least < 1:
                notes.append(text.format(units.share(least)))
        for why in frame["utilization_reason"].drop_nulls().unique():
            notes.append(f"no utilization: {why}")
        for why in frame["occupancy_reason"].drop_nulls().unique().sort():
            notes.append(f"no occupancy of these or some of their kernels: {why}")
    return Table(table.title, table.columns, table.rows, notes)


REPORT = Report(
    name="device_use",
    order=400,
    title="Use of the devices",
    holds=FRAMES["device_use()"],
    frame=lambda profile: profile.device_use(),
    empty="no kernels in this profile: no GPU was used, or kernels were not captured",
    shown=[
        "process",
        "device",
        "device_name",
        "window",
        "gpu_utilization",
        "sm_efficiency",
        "achieved_occupancy",
        "theoretical_occupancy",
        "tensor_core_share",
        "tensor_core_time",
        "tensor_core_undetermined_time",
        "kernels",
    ],
    table=device_use,
    forms=FORMS,
    gpu_only=True,
    aliases=("gpu_utilization",),
)
