"""MFU and HFU of each step, and how much of the step's time they know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from opscope.frames import FRAMES
from opscope.reports import units
from opscope.reports.layout import Table
from opscope.reports.report import Report, View
from opscope.reports.tables import listed

if TYPE_CHECKING:
    from opscope.profile import Profile

#: Below this share the FLOPs utilization is a lower bound that must be called one.
_ALMOST_ALL: Final = 0.98


def utilization(report: Report, profile: Profile, view: View) -> Table:
    """MFU and HFU of each step, and how much of the step's time they know."""
    frame = report.frame(profile)
    device, why = profile.device
    against = f", against {device.name}" if device is not None else f", no peak: {why}"
    table = listed(report, frame, view, f"{report.title}{against}")
    notes = list(table.footnotes)
    if len(frame):
        notes.append(
            "MFU: model FLOPs, forward and backward once, over the dense peak of the dtype of most of them "
            "and the wall time; HFU: with what was computed again (activation checkpointing, the scores "
            "in an attention's backward)"
        )
        if device is not None and "tf32" in device.tensor and (frame["dtype"] == "f32").any():
            notes.append("f32 is held against TF32's peak, which it has where TF32 is allowed")
        low = frame["known"].min()
        if isinstance(low, float) and low < _ALMOST_ALL:
            notes.append(
                f"at least: the FLOPs of only {units.share(low)} of a step's kernel time are known "
                "(--reports missing has the rest)"
            )
        if frame["done_flops"].null_count() == len(frame):
            notes.append(
                "no step has an op whose FLOPs are known, such as where the trace has no shapes"
            )
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
