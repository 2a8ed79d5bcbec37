"""The report of launch configurations: what limits the occupancy of each, its waves and their tail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.core.question.layout import Table
from opscope.frames import FRAMES
from opscope.reports.device_columns import FORMS
from opscope.reports.report import Report, View
from opscope.reports.tables import listed

if TYPE_CHECKING:
    from opscope.profile import Profile


def kernel_launches(report: Report, profile: Profile, view: View) -> Table:
    """Return the configurations, with what is missing and what is a bound."""
    frame = report.frame(profile)
    table = listed(report, frame, view)
    notes = list(table.footnotes)
    if frame["waves"].is_not_null().any():
        notes.append(
            "tail: estimate, part of the places for blocks that the last wave leaves empty"
        )
    if frame["clustered"].any():
        notes.append(
            "blocks of some kernels start in clusters: their occupancy and waves are bounds"
        )
    reasons = frame["occupancy_reason"].drop_nulls().unique().sort()
    notes += [f"no occupancy of some kernels: {why}" for why in reasons]
    return Table(table.title, table.columns, table.rows, notes)


REPORT = Report(
    name="kernel_launches",
    order=420,
    title="Launch configurations",
    holds=FRAMES["kernel_launches()"],
    frame=lambda profile: profile.kernel_launches(),
    empty="no kernels in this profile: no GPU was used, or kernels were not captured",
    shown=[
        "share",
        "total",
        "calls",
        "name",
        "grid",
        "block",
        "registers",
        "shared_memory",
        "theoretical_occupancy",
        "limited_by",
        "achieved_occupancy",
        "waves",
        "tail_share",
    ],
    table=kernel_launches,
    written=False,
    forms=FORMS,
    gpu_only=True,
)
