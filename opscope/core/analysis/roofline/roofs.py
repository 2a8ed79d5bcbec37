"""Roofline tables, with notes on the device's peaks and on doubtful values below them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from opscope.core.analysis.answers import Answers
from opscope.core.question import units
from opscope.core.question.layout import Table
from opscope.core.question.record import Report, View
from opscope.core.question.tables import listed

if TYPE_CHECKING:
    import polars as pl

    from opscope.core.perf.devices.peaks import Device

#: The columns shown; the files also have the sums of FLOPs and bytes.
SHOWN: Final = (
    "calls duration ideal_time efficiency bound attained_flops attained_bandwidth "
    "intensity rated over over_reason"
)
EMPTY: Final = "no op that launched work has known FLOPs or bytes; the trace may have no shapes"
#: Dtypes whose peaks are printed, if the device has them.
_DTYPES: Final = ("f64", "f32", "tf32", "f16", "bf16", "f8", "f6", "f4", "i8")


def roofline_table(report: Report, profile: Answers, view: View) -> Table:
    """Return the rows by time (steps in their order), with the device's peaks and doubts below."""
    device, why = profile.device
    against = f"against {device.name}" if device is not None else f"no roof: {why}"
    frame = report.frame(profile)
    if "step" in frame.columns:
        frame = frame.sort("step", nulls_last=True)
    table = listed(report, frame, view, f"{report.title}, {against}")
    notes = list(table.footnotes)
    if device is not None:
        notes += about(device)
    if len(frame):
        notes += _doubts(frame, int(profile.efficiency()["incomplete"].sum()))
    return Table(table.title, table.columns, table.rows, notes)


def about(device: Device) -> list[str]:
    """Return lines with the device's peaks, their source, and a warning if they may not apply."""
    peaks = []
    for unit, table in (("tensor", device.tensor), ("vector", device.vector)):
        rates = [f"{dtype} {units.flop_rate(table[dtype])}" for dtype in _DTYPES if dtype in table]
        if rates:
            peaks.append(f"{unit} {', '.join(rates)}")
    memory = (
        f"memory {units.bandwidth(device.bandwidth)}"
        if device.bandwidth is not None
        else "the memory's bandwidth is not known, so no op has a roof"
    )
    lines = [
        f"peaks (dense): {'; '.join([*peaks, memory])}",
        f"source: {device.source}{_check(device)}",
    ]
    return [*lines, f"warning: {device.note}"] if device.note else lines


def _check(device: Device) -> str:
    if device.computed:
        return ""
    rechecked = [name for name in ("peaks", "memory", "units") if name in device.checked]
    if not rechecked:
        return " (not looked up a second time, checked by arithmetic: docs/reference/devices.md)"
    return f" ({', '.join(rechecked)} looked up a second time: docs/reference/devices.md)"


def _doubts(frame: pl.DataFrame, incomplete: int) -> list[str]:
    total = int(frame["duration"].sum())
    rated = float((frame["duration"] * frame["rated"].fill_null(0)).sum())
    lines = []
    if 0 < rated < 0.9995 * total:
        lines.append(
            f"{units.share(1 - rated / total)} of this time has no roof: the bytes or the dtype's peak are "
            "not known, or the bytes cross a link; --reports missing lists the ops without any known cost"
        )
    if incomplete:
        lines.append(
            f"{incomplete} {'call has' if incomplete == 1 else 'calls have'} no roof: kernels are missing,"
            " as in a sampled trace"
        )
    if (frame["over"].fill_null(0) > 0).any():
        lines.append(
            "above: the share of the rated time in calls above their roof, and the usual reason: data "
            "was in cache, the timer is too coarse, or the algorithm needs fewer multiplications"
        )
    return lines
