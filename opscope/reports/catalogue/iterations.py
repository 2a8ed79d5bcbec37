"""The report of iterations: each with what was in it, which were warm-up, and the range to analyse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.core.question import units
from opscope.core.question.layout import Column, Table
from opscope.frames import FRAMES
from opscope.reports.report import Report, View
from opscope.reports.tables import listed

if TYPE_CHECKING:
    from opscope.profile import Profile


def iterations(report: Report, profile: Profile, view: View) -> Table:
    """Return the iterations, begins counted from the first, with the range that is recommended, and why."""
    import polars as pl

    from opscope.core.analysis.steps.iterations import stable

    frame = report.frame(profile)
    begin = pl.col("start") - pl.col("start").min()
    shown = frame.filter(pl.col("iteration").is_not_null()).with_columns(begin.alias("start"))
    table = listed(report, shown, view)
    several = frame["process"].n_unique() > 1
    notes = list(table.footnotes)
    ranges = stable(frame)
    for one in ranges:
        of = f" of process {one.process}" if several else ""
        if one.first is None:
            notes.append(f"no stable range{of}: {one.reason}")
        else:
            notes.append(f"stable{of}: {one.first} to {one.last}, {one.reason}")
    first = max((one.first for one in ranges if one.first is not None), default=None)
    last = min((one.last for one in ranges if one.last is not None), default=None)
    if first is not None and last is not None and first <= last:
        notes.append(f"to see them alone: --iter-start {first} --iter-stop {last}")
    unsure = frame.filter(pl.col("is_step") == pl.lit(False))
    if len(unsure):
        notes.append(
            "not sure, so other reports have no steps unless a range of them is selected:"
            f" {'; '.join(units.text(why) for why in unsure['reason'].drop_nulls().unique().sort())}"
        )
    return Table(table.title, table.columns, table.rows, list(dict.fromkeys(notes)))


REPORT = Report(
    name="iterations",
    order=295,
    title="Iterations",
    holds=FRAMES["iterations()"],
    frame=lambda profile: profile.iterations(),
    empty="no iterations in this profile",
    shown=[
        "iteration",
        "process",
        "start",
        "duration",
        "ops",
        "kernels",
        "device_time",
        "warm_up",
        "slow",
        "stable",
        "found_by",
        "certainty",
    ],
    forms=[
        Column("start", "begin", units.time),
        Column("duration", "duration", units.time),
        Column("device_time", "device time", units.time),
        Column("found_by", "by", units.text),
        Column("certainty", "certainty", lambda value: "" if value is None else units.share(value)),
    ],
    table=iterations,
    written=False,
)
