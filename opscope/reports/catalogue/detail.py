"""The report of ops by device time, one row per distinct call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from opscope.core.question import units
from opscope.core.question.names import layer_patterns
from opscope.frames import FRAMES
from opscope.reports.grouped import EMPTY
from opscope.reports.report import Report, View
from opscope.reports.tables import listed, running

if TYPE_CHECKING:
    import polars as pl

    from opscope.core.question.layout import Table
    from opscope.profile import Profile


def ops(report: Report, profile: Profile, view: View) -> Table:
    """Return the ops by device time (self time if the device is the CPU), the longest first.

    Layers that differ only in a number, such as the blocks of a transformer, share one row.
    """
    from opscope.core.analysis.ops.windows import OUTSIDE_WINDOW  # loads Polars

    frame, outside = report.frame(profile), 0
    if len(profile.trace["windows"]):
        frame, outside = _captured(frame, OUTSIDE_WINDOW)
    frame = _over_layers(frame).sort("device_time", descending=True, nulls_last=True)
    table = listed(report, running(frame), view)
    notes = list(table.footnotes)
    without = sum(profile.summary()["device_unattributed_time"].drop_nulls())
    if without and len(frame) and not profile.cpu_only:
        notes.append(
            f"shares are of the time with an op; {units.time(without)} have no op (--by op)"
        )
    if outside:
        notes.append(f"{outside:,} recorded calls are not in this table: {OUTSIDE_WINDOW}")
    return replace(table, footnotes=notes)


def _captured(frame: pl.DataFrame, reason: str) -> tuple[pl.DataFrame, int]:
    """Return the totals without the rows of this ``reason``, and how many calls these rows have."""
    outside = (frame["reason"].cast(str) == reason).fill_null(False)
    return frame.filter(~outside), int(frame["calls"].filter(outside).sum())


def _over_layers(frame: pl.DataFrame) -> pl.DataFrame:
    """Add up equal calls of layers that differ only in a number; ``h.*.mlp (24)`` is 24 layers."""
    import polars as pl

    from opscope.core.tables.columns import known_sum

    keys = ["op", "op_type", "direction", "inputs", "outputs", "dtypes", "params"]
    sums = ["share", "device_time", "self_time", "cpu_time", "calls", "kernels", "flops", "bytes"]
    many = pl.col("layer").n_unique()
    patterns = layer_patterns(frame["layer"].drop_nulls().unique().cast(pl.String).to_list())
    starred = pl.col("layer").replace_strict(patterns, default=None, return_dtype=pl.String)
    return (
        frame.lazy()
        .with_columns(pl.col("layer", "source").cast(pl.String))
        .with_columns((starred if patterns else pl.col("layer")).alias("pattern"))
        .group_by(*keys, "pattern", maintain_order=True)
        .agg(
            *map(known_sum, sums),
            pl.when(many > 1)
            .then(pl.format("{} ({})", pl.col("pattern").first(), many))
            .otherwise(pl.col("layer").first())
            .alias("layer"),
            pl.col("source").first(),
        )
        .collect()
    )


REPORT = Report(
    name="detail",
    order=100,
    title="Top ops, one row per shape",
    holds=FRAMES["op_totals()"],
    frame=lambda profile: profile.op_totals(),
    empty=EMPTY,
    shown=[
        "share",
        "running",
        "device_time",
        "calls",
        "op",
        "direction",
        "inputs",
        "outputs",
        "layer",
        "flops",
        "source",
    ],
    table=ops,
    by="shape",
    by_order=55,
    aliases=("op", "ops"),
    lean=True,
)
