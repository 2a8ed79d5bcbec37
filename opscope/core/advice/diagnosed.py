"""The question of what bounds the steps, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl

from opscope.core.advice.causes import causes
from opscope.core.advice.commands import with_file
from opscope.core.advice.ranked import diagnosed
from opscope.core.advice.said import verdict
from opscope.core.analysis.answers import Answers
from opscope.core.analysis.host.light_diagnosis import CANNOT_TELL, FINDINGS
from opscope.core.question import units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column, Table
from opscope.core.question.record import Question, Report, View
from opscope.core.question.tables import listed
from opscope.core.question.words import columns


def answer(profile: Answers) -> pl.DataFrame:
    """What bounds the steps, in words: the first rows of the ranked list; then what cannot be told.

    The first row is the answer: a cause such as ``input-bound``, or a detector's finding; ``healthy``
    where nothing stands out; or ``cannot tell``, with what to capture. ``advice()`` has the whole list.
    Steps that are warm-up are left out if there are others; without steps all that was recorded is
    judged. Light mode judges the steps by their phases.
    """
    seen = profile.of(causes)
    command = profile.trace.origin.get("command")
    rows = diagnosed(verdict(profile), seen, command)
    told_rows = [{name: row.get(name) for name in FINDINGS} for row in rows]
    return pl.DataFrame(told_rows, schema=FINDINGS)


def diagnosis_table(report: Report, profile: Answers, view: View) -> Table:
    """A row for each finding and, below, its sentence in full, which no column holds. On the first screen,
    only the first finding has sentences; the others have only their names."""
    frame = report.frame(profile)
    if view.first:
        return Table(report.title, [Column("what", "")], (), sentences=_answer(frame, profile))
    losses = frame.filter(frame["lost"].is_not_null() & (frame["finding"] != "healthy"))
    below = []
    for row in frame.to_dicts():
        below.append(f"  {_name(row)}: {units.text(row['text'])}")
        if row["to_try"] is not None:
            below.append(f"    try: {units.text(with_file(row['to_try'], profile))}")
    table = listed(report, losses, view)
    if losses.is_empty():
        table = replace(table, footnotes=())
    return replace(table, footnotes=(*table.footnotes, *below))


def _name(row: dict[str, Any]) -> str:
    whose = "" if row["rank"] is None else f" (rank {row['rank']})"
    return f"{units.text(row['finding'])}{whose}"


def _answer(frame: pl.DataFrame, profile: Answers) -> list[str]:
    """Return the first finding with its evidence and what to try, and the names of the others."""
    first, *others = frame.to_dicts()
    lines = [f"{_name(first)}: {units.text(first['text'])}"]
    if first["to_try"] is not None:
        lines.append(f"try: {units.text(with_file(first['to_try'], profile))}")
    more = [row for row in others if row["finding"] != CANNOT_TELL]
    if more:
        named = [
            units.text(row["finding"])
            + ("" if not row["share"] else f" ({units.share(row['share'])} of {row['of']})")
            for row in more
        ]
        lines.append(f"also: {', '.join(named)}")
    return lines


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "diagnosis()",
            (
                "one row per finding, what costs most first, then one for each thing that cannot "
                "be told"
            ),
            columns(
                "process rank finding share of lost text to_try detector confidence",
                """
                finding: text: the answer in a few words: a cause, or a detector's finding; `healthy`;
                    `cannot tell`, of what the text says
                share: fraction: the part of the time in `of` that it concerns
                of: text: what the share is of: a median step, all steps, or all of the wall time
                lost: ns: how much shorter the run were without it, at most; of a detector's finding about
                text: text: the finding, with its numbers
                to_try: text: the first thing to try, or what to capture
                detector: text: the detector whose finding it is, or that explains the cause
                confidence: text: how likely the change saves time: high, medium or low
                """,
            ),
        ),
    ),
    reports=(
        Report(
            name="diagnosis",
            title="Diagnosis",
            empty="nothing was found",
            shown="rank finding share of lost confidence",
            table=diagnosis_table,
            sums="",
            lean=True,
        ),
    ),
)
