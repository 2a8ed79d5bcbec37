"""Rooflines and FLOPs utilization as tables, with what a reader must know of the device below them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import units
from .layout import Table

if TYPE_CHECKING:
    import polars as pl

    from opscope.core.perf.devices.peaks import Device
    from opscope.profile import Profile

#: The roofline reports, by what their rows are.
GROUPS: Final = {
    "roofline": "op",
    "roofline_kernel": "kernel",
    "roofline_layer": "layer",
    "roofline_step": "step",
}
#: What is shown; the files have the sums of FLOPs and bytes as well.
_SHOWN: Final = (
    "calls",
    "duration",
    "ideal_time",
    "efficiency",
    "bound",
    "attained_flops",
    "attained_bandwidth",
    "intensity",
    "rated",
    "over",
    "over_reason",
)
_KEYS: Final = {"op": ("op",), "kernel": ("name", "op"), "layer": ("layer",), "step": ("step",)}
#: Dtypes whose peaks are printed, where the device has them.
_DTYPES: Final = ("f64", "f32", "tf32", "f16", "bf16", "f8", "f6", "f4", "i8")
#: Below this share the FLOPs utilization is a lower bound that must be called one.
_ALMOST_ALL: Final = 0.98


def roofline(profile: Profile, report: str, top: int | None) -> Table:
    """One of ``GROUPS``: the rows by time, and the device's peaks and doubts below them."""
    from .console import totals

    by = GROUPS[report]
    device, why = profile.device
    against = f"against {device.name}" if device is not None else f"no roof: {why}"
    frame = profile.efficiency(by)
    if by == "step":
        frame = frame.sort("step", nulls_last=True)
    empty = "no op that launched work has a known cost, such as where the trace has no shapes"
    table = totals(f"Roofline by {by}, {against}", frame, (*_KEYS[by], *_SHOWN), top, empty)
    notes = list(table.footnotes)
    if device is not None:
        notes += about(device)
    if len(frame):
        notes += _doubts(frame, int(profile.efficiency()["incomplete"].sum()))
    return Table(table.title, table.columns, table.rows, notes)


def about(device: Device) -> list[str]:
    """The device's peaks, where they are from, and what does not fit."""
    told = []
    for unit, table in (("tensor", device.tensor), ("vector", device.vector)):
        known = [f"{dtype} {units.flop_rate(table[dtype])}" for dtype in _DTYPES if dtype in table]
        if known:
            told.append(f"{unit} {', '.join(known)}")
    memory = (
        f"memory {units.bandwidth(device.bandwidth)}"
        if device.bandwidth is not None
        else "the memory's bandwidth is not known, so that nothing has a roof"
    )
    lines = [
        f"peaks (dense): {'; '.join([*told, memory])}",
        f"from: {device.source}{_checked(device)}",
    ]
    return [*lines, f"warning: {device.note}"] if device.note else lines


def _checked(device: Device) -> str:
    if device.computed:
        return ""
    again = [name for name in ("peaks", "memory", "units") if name in device.checked]
    if not again:
        return " (not looked up again, checked by arithmetic: docs/devices.md)"
    return f" ({', '.join(again)} looked up again: docs/devices.md)"


def _doubts(frame: pl.DataFrame, incomplete: int) -> list[str]:
    whole = int(frame["duration"].sum())
    rated = float((frame["duration"] * frame["rated"].fill_null(0)).sum())
    lines = []
    if 0 < rated < 0.9995 * whole:
        lines.append(
            f"{units.share(1 - rated / whole)} of this time has no roof: the bytes or the dtype's peak are "
            "not known, or the bytes cross a link; what has no cost at all is in --reports missing"
        )
    if incomplete:
        lines.append(
            f"{incomplete} calls have no roof as kernels of theirs are missing from the trace, as if sampled"
        )
    if (frame["over"].fill_null(0) > 0).any():
        lines.append(
            "above: the share of the rated time in calls above their roof, and why most of them are: their "
            "data was in cache, the timer is too coarse, or the algorithm needs fewer multiplications"
        )
    return lines


def utilization(profile: Profile, top: int | None = None) -> Table:
    """MFU and HFU of each step, and how much of the step's time they know."""
    from .console import frame_table

    frame = profile.utilization()
    device, why = profile.device
    against = f", against {device.name}" if device is not None else f", no peak: {why}"
    table = frame_table(
        f"FLOPs utilization by step{against}", frame, "no steps in this profile", top
    )
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
