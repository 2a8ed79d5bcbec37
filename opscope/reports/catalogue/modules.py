"""The report of the tree of modules."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from opscope.core.question.layout import Column
from opscope.core.question.units import count, size
from opscope.frames import FRAMES
from opscope.reports.report import Report, View
from opscope.reports.trees import Shape, folded

if TYPE_CHECKING:
    from opscope.core.question.layout import Table
    from opscope.profile import Profile

_NONE = (
    "the trace names no modules: opscope run and init(layers=True) record them, and so does"
    " torch.profiler with with_modules or with_stack"
)


def tree(report: Report, profile: Profile, view: View) -> Table:
    """Return the modules with the most time, as a tree."""
    frame = report.frame(profile)
    table = folded(report, frame, view, Shape("module_id", "parent_module", "module"))
    if not frame["row_kind"].is_in(["module", "group"]).any():
        return replace(table, footnotes=[*table.footnotes, _NONE])
    return table


REPORT = Report(
    name="modules",
    order=370,
    title="Modules",
    holds=FRAMES["modules()"],
    frame=lambda profile: profile.modules(),
    empty=_NONE,
    shown=(
        *("module", "module_type", "module_calls", "share", "device_total", "device_self"),
        *("forward_part", "backward_part", "host_total", "call_time", "flops", "bytes", "at_peak"),
    ),
    forms=(
        Column("module_type", "class", flexible=True, rank=6),
        Column("module_calls", "calls", count, rank=3),
        Column("at_peak", "at the peak", size, rank=7),
    ),
    table=tree,
    aliases=("module",),
)
