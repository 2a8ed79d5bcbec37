"""The question of what to change in the program, answered by the detectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from opscope.core.advice import advised, ask
from opscope.core.advice.said import said_by
from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.lost_kernels import losses
from opscope.core.analysis.summary.doubts import doubts
from opscope.core.question import parameters, units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Table
from opscope.core.question.record import Question, Report, View
from opscope.core.question.tables import listed
from opscope.core.question.words import columns


def answer(profile: Answers, detectors: Sequence[str] | None = None) -> pl.DataFrame:
    """What to change in the program, by what it would save; then what no detector could tell.

    A saving lies between ``saving_least`` and ``saving_most``; ``saving`` is the best estimate, made by a
    replay of the timeline with the change where the detector has none of its own. Savings overlap: they
    must not be added up; ``advice_combined()`` has the saving of all. ``outcome`` is ``nothing found``
    only where the detector saw all that it needs. ``detectors``: ask these alone. Raises ValueError
    for a name that no detector has.
    """
    return ask.frame(profile, said_by(profile, detectors))


def table_of(
    report: Report,
    frame: pl.DataFrame,
    combined: pl.DataFrame,
    view: View,
    lacks: Sequence[str] = (),
) -> Table:
    """A row for each finding; below, what the data ``lacks``, and each finding's full sentences, which no
    column has."""
    findings = frame.filter(pl.col("outcome") == "found")
    shown = findings if view.top is None else findings.head(view.top)
    below = [line for row in shown.to_dicts() for line in advised.lines(row)]
    if len(findings):
        below.insert(0, units.text(advised.together(combined.row(0, named=True))))
    below += [units.text(line) for line in advised.rest(frame)]
    table = listed(report, findings, view)
    if frame.is_empty():
        return table
    notes = table.footnotes if len(findings) else ("no detector found anything to change",)
    return replace(table, footnotes=(*lacks, *notes, *below))


def advice_table(report: Report, profile: Answers, view: View) -> Table:
    return table_of(
        report,
        report.frame(profile),
        profile.advice_combined(),
        view,
        [*profile.of(losses), *profile.of(doubts)],
    )


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "advice()",
            (
                "one row per finding, by what it saves; then one per detector that cannot tell or "
                "found nothing"
            ),
            columns(
                "number detector outcome cause finding evidence recommendation time saving saving_share "
                "step_saving step_share saving_least saving_most reasoning confidence reason threshold",
                """
                detector: text: the detector; of a cause that none explains, its name
                cause: text: the cause of diagnosis() that the finding explains; null if it explains none
                step_saving: ns: best estimate of what the change saves of a median step; null where the
                    time is lost once in the run, or no steps are known
                step_share: fraction: step_saving / a median step; of a cause that no detector explains, the
                    part of the step that it takes
                outcome: text: found, cannot tell, or nothing found
                evidence: text: where the program does it: source lines, layers or ops
                recommendation: text: what to change
                time: ns: the time that the finding is about
                saving: ns: best estimate of what the change would save; null if only bounds are known
                saving_share: fraction: saving / all of the wall time
                saving_least: ns: lower bound of what the change would save
                reasoning: text: how the saving and its bounds were computed
                confidence: text: how likely the change saves time: high, medium or low
                reason: text: why the detector cannot tell
                threshold: text: what a finding of the detector needs at least; null where it cannot tell
                """,
            ),
        ),
    ),
    parameters={"detectors": parameters.words("ask these detectors alone")},
    reports=(
        Report(
            name="advice",
            title="Advice",
            empty="no detector is installed",
            shown="number detector time saving step_saving step_share saving_most confidence",
            table=advice_table,
            sums="",
        ),
    ),
)
