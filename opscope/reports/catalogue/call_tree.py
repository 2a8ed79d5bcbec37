"""The report of the call tree: a flame graph's data, folded to the paths with the most time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.frames import FRAMES
from opscope.reports.grouped import EMPTY
from opscope.reports.report import Report, View
from opscope.reports.trees import Shape, folded

if TYPE_CHECKING:
    from opscope.core.question.layout import Table
    from opscope.profile import Profile


def tree(report: Report, profile: Profile, view: View) -> Table:
    """Return the paths with the most time, as a tree."""
    return folded(report, report.frame(profile), view, Shape("path_id", "parent_path", "frame"))


REPORT = Report(
    name="call_tree",
    order=380,
    title="Call tree: what was open, merged by path",
    holds=FRAMES["call_tree()"],
    frame=lambda profile: profile.call_tree(),
    empty=EMPTY,
    shown=(
        *("frame", "frame_kind", "calls", "device_total", "device_self", "host_total", "host_self"),
    ),
    table=tree,
    written=False,
    aliases=("flame_graph",),
)
