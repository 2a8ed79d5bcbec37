"""The notes on a trace: missing, inferred or wrong data."""

from __future__ import annotations

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.critical.graph import assumptions
from opscope.core.analysis.ops.lost_kernels import in_words
from opscope.core.question import parameters
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns


def answer(profile: Answers, *, critical_path: bool = False) -> pl.DataFrame:
    """The remarks on the trace by its reader and by the linking of kernels to ops: missing, inferred or
    wrong data.

    They do not depend on other questions asked of the profile. ``critical_path``: also the critical
    path's assumptions, which need the path to be computed.
    """
    notes = profile._all_notes()
    lost = profile.ask("lost_kernels")
    missing = in_words(lost)
    if missing is not None:
        first = ["warning"], [missing], [int(lost["lost_kernels"].sum())]
        notes = pl.concat([pl.DataFrame(first, schema=notes.schema), notes])
    if not critical_path:
        return notes
    assumed = profile.of(assumptions)
    rows = {
        "severity": ["info"] * len(assumed),
        "what": [*assumed],
        "how_many": [*assumed.values()],
    }
    return pl.concat([notes, pl.DataFrame(rows, schema=notes.schema)])


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "notes()",
            "one row per remark of the reader of the trace",
            columns(
                "severity what how_many",
                """
                severity: text: info, warning or error
                what: text: what the reader of the trace found
                how_many: count: number of records that the note is about
                """,
            ),
        ),
    ),
    parameters={
        "critical_path": parameters.switch("also what the critical path takes for granted")
    },
    kept=False,
    as_text=False,
    reports=(
        Report(
            name="notes",
            title="Notes",
            empty="no notes",
        ),
    ),
)
