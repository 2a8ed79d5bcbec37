"""How the reports of hardware counters are shown."""

from __future__ import annotations

from typing import Final

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.roofline.roofs import about
from opscope.core.question import units
from opscope.core.question.layout import Column, Table
from opscope.core.question.record import Report, View
from opscope.core.question.tables import listed

EMPTY: Final = (
    "no hardware counters in this profile: measure them with ncu, or with opscope run --counters"
    " (docs/counters.md)"
)


def value(number: object) -> str:
    """Return a counter's value: whole numbers without decimals, others with at most three."""
    if not isinstance(number, (int, float)):
        return units.UNKNOWN
    if float(number).is_integer() and abs(number) < 1 << 62:
        return f"{int(number):,}"
    return f"{number:,.3f}".rstrip("0").rstrip(".") if abs(number) >= 0.01 else f"{number:.3g}"


def difference(share: object) -> str:
    """Return ``+3.1 %`` for 0.031."""
    if not isinstance(share, (int, float)):
        return units.UNKNOWN
    return f"{share:+.1%}".replace("%", " %")


def _column(key: str, title: str, show: object = None, **more: object) -> Column:
    return Column(key, title, show or units.text, **more)  # type: ignore[arg-type]


FORMS: Final = (
    _column("counter", "counter", flexible=True, least=24, cut="start"),
    _column("counted_kernels", "kernels", units.count),
    _column("counted", "total", value),
    _column("mean_count", "mean", value),
    _column("least_count", "least", value),
    _column("most_count", "most", value),
    _column("f64_flops", "f64", units.flop),
    _column("f32_flops", "f32", units.flop),
    _column("f16_flops", "f16", units.flop),
    _column("tensor_flops", "Tensor Cores", units.flop),
    _column("dram_read", "DRAM read", units.size),
    _column("dram_written", "DRAM written", units.size),
    _column("dram_bytes", "DRAM", units.size),
    _column("counted_time", "time", units.time),
    _column("counted_flops", "FLOPs measured", units.flop),
    _column("model_flops", "model", units.flop),
    _column("flops_difference", "difference", difference),
    _column("model_bytes", "bytes model", units.size),
    _column("counted_bytes", "bytes measured", units.size),
    _column("bytes_difference", "difference", difference),
    _column("model_intensity", "FLOP/B model", units.ratio, rank=8),
    _column("counted_intensity", "FLOP/B measured", units.ratio, rank=8),
    _column("model_bound", "bound model", rank=5),
    _column("counted_bound", "bound measured", rank=5),
    _column("model_efficiency", "efficiency model", units.share, rank=6),
    _column("counted_efficiency", "efficiency measured", units.share, rank=6),
    _column("no_vector", "FLOPs are null because", flexible=True, rank=9),
    _column("no_tensor", "Tensor Cores are null because", flexible=True, rank=9),
    _column("no_dram", "DRAM is null because", flexible=True, rank=9),
    _column("model_reason", "model is null because", flexible=True, rank=9),
    _column("counted_reason", "measured is null because", flexible=True, rank=7),
)


def beside_the_model(report: Report, profile: Answers, view: View) -> Table:
    """Return the rows with the device's peaks below."""
    device, why = profile.device
    against = f"against {device.name}" if device is not None else f"no roof: {why}"
    frame = report.frame(profile)
    shown = [name for name in report.keys if name in frame.columns and frame[name].count()]
    table = listed(report, frame, view, f"{report.title}, {against}")
    notes = [*table.footnotes, *(about(device) if device is not None and len(frame) else ())]
    columns = (
        [column for column in table.columns if column.key in shown] if len(frame) else table.columns
    )
    return Table(table.title, columns, table.rows, notes)
