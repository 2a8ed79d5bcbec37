"""The lines below every table of a server's steps: the source of the steps, and what is left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.ops import op_index
from opscope.core.analysis.serving.step_sums import step_sums
from opscope.core.attribution.served_steps import of_job
from opscope.core.question import units
from opscope.core.question.column import Column
from opscope.core.question.layout import Table
from opscope.core.question.record import Report, View
from opscope.core.question.tables import listed


def served_table(report: Report, profile: Answers, view: View) -> Table:
    """Return a report of engine steps, with lines on where the steps come from."""
    table = listed(report, report.frame(profile), view)
    return replace(table, footnotes=[*table.footnotes, *step_lines(profile)])


def no_rows(documented: Iterable[Column]) -> pl.DataFrame:
    """Return a frame of these columns without rows."""
    kinds = {"text": pl.String, "yes/no": pl.Boolean, "ns": pl.Int64, "count": pl.Int64}
    return pl.DataFrame(
        schema={
            each.name: pl.Int64 if each.unit == "number" else kinds.get(each.unit, pl.Float64)
            for each in documented
        }
    )


def step_lines(profile: Answers) -> list[str]:
    """Return lines that give the source of the steps, its confidence, and which steps are warm-up."""
    steps = of_job(profile.of(step_sums))
    lines = []
    for source, count, least in (
        steps.group_by("source", maintain_order=True)
        .agg(pl.len(), pl.col("confidence").min())
        .rows()
    ):
        sure = "" if least == 1 else f" (confidence {units.share(least)})"
        lines.append(f"{units.counted(count, 'engine step')} told by {source}{sure}")
    others = profile.of(op_index).served_steps.filter(pl.col("engine") > 0)
    if len(others):
        lines.append(
            f"{units.counted(len(others), 'step')} of further engines in the same process, on"
            f" {units.counted(others.n_unique(['process', 'thread']), 'thread')}: not shown"
        )
    unknown = steps["kind"].null_count()
    if unknown:
        lines.append(f"{units.counted(unknown, 'step')}: nothing shows which kind")
    warm = int(steps["warm_up"].fill_null(False).sum())
    if warm:
        lines.append(
            f"{units.counted(warm, 'step')} of warm-up: no part of medians and percentiles"
        )
    return lines
