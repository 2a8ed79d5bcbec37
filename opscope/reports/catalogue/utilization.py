"""The report of the MFU and HFU of each step, and of the share of kernel time whose FLOPs are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from opscope.core.question import units
from opscope.core.question.layout import Table
from opscope.frames import FRAMES
from opscope.reports.report import Report, View
from opscope.reports.tables import listed

if TYPE_CHECKING:
    from opscope.profile import Profile

#: Below this share of known FLOPs the utilization is called a lower bound.
_ALMOST_ALL: Final = 0.98


def utilization(report: Report, profile: Profile, view: View) -> Table:
    """Return the MFU and HFU of each step, with notes on their definition and their limits."""
    frame = report.frame(profile)
    device, why = profile.device
    against = f", against {device.name}" if device is not None else f", no peak: {why}"
    table = listed(report, frame, view, f"{report.title}{against}")
    notes = list(table.footnotes)
    if len(frame):
        notes.append(
            "MFU: model FLOPs (forward and backward once) / (wall time * dense peak of the dtype of most of "
            "them); HFU: also counts what was computed again (activation checkpointing, the scores in an "
            "attention's backward)"
        )
        if device is not None and "tf32" in device.tensor and (frame["dtype"] == "f32").any():
            notes.append(
                "f32 is compared with TF32's peak, which f32 can reach only if TF32 is allowed"
            )
        low = frame["known"].min()
        if isinstance(low, float) and low < _ALMOST_ALL:
            notes.append(
                f"lower bounds: in some step the FLOPs of only {units.share(low)} of kernel time are known "
                "(--reports missing lists the other ops)"
            )
        if frame["done_flops"].null_count() == len(frame):
            notes.append("no step has an op whose FLOPs are known; the trace may have no shapes")
    if device is not None and device.note:
        notes.append(f"warning: {device.note}")
    return Table(table.title, table.columns, table.rows, notes)


REPORT = Report(
    name="utilization",
    order=160,
    title="FLOPs utilization by step",
    holds=FRAMES["utilization()"],
    frame=lambda profile: profile.utilization(),
    empty="no steps in this profile",
    table=utilization,
    aliases=("mfu",),
)
