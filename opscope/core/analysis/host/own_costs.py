"""The cost of recording itself."""

from __future__ import annotations

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns


def answer(profile: Answers) -> pl.DataFrame:
    """opscope's own cost while it recorded, by process and part."""
    return profile.trace["own_costs"]


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "own_costs()",
            "one row per process and part of opscope: the part's own cost while it recorded",
            columns(
                "process part time calls one_in span steps_span steps_time",
                """
                time: ns: time that this part took; parts do not overlap
                one_in: number: N if one call in N was timed; null if the time is the number of calls
                    times the usual cost of a call
                span: ns: time that the process recorded
                steps_span: ns: part of span inside steps that ended
                steps_time: ns: part of steps_span that opscope itself took, in all parts; null if no hook
                    is timed
                """,
            ),
        ),
    ),
    kept=False,
    as_text=False,
    reports=(
        Report(
            name="own_costs",
            title="Time of opscope itself",
            empty="not known: opscope did not record this profile, or did not time itself",
            sums="",
        ),
    ),
)
