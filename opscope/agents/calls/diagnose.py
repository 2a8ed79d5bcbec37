"""``diagnose``: what bounds the run, or that nothing does, or that it cannot be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from opscope.agents import hints
from opscope.agents.answer import Answer, Hint, Rows
from opscope.agents.call import RUN, SELECTION, TABLE, Asked, Call
from opscope.agents.hints import CANNOT_TELL
from opscope.agents.parts import cannot_tell, units_of
from opscope.core.advice.diagnosis_rows import HEALTHY
from opscope.core.analysis.host.light_diagnosis import NOTHING
from opscope.core.analysis.ops.lost_kernels import losses
from opscope.core.question.registry import question

#: The verdict for each kind of first row that is no cause.
_VERDICTS: Final = {HEALTHY: "healthy", NOTHING: "nothing found", CANNOT_TELL: CANNOT_TELL}
#: Findings whose evidence is named.
_FIRST: Final = 3
_ROWS: Final = ("rank", "finding", "share", "of", "lost", "detector", "confidence", "text")


def answer(asked: Asked) -> Answer:
    """Say the verdict, its cause, the other findings, and what cannot be told."""
    profile = asked.profile
    diagnosis = question("diagnosis")
    frame = profile.ask(diagnosis)
    first, *others = frame.to_dicts()
    verdict = _VERDICTS.get(first["finding"], "cause")
    untold = [row["text"] for row in others if row["finding"] == CANNOT_TELL]
    findings = frame[1:].filter(pl.col("finding") != CANNOT_TELL).select(_ROWS)
    sentences = [first["text"], *untold]
    lacks = [text for text in cannot_tell(profile) if not any(text in each for each in sentences)]
    return Answer(
        asked.call.name,
        asked.run.name,
        verdict,
        _cause(first) if verdict == "cause" else None,
        {"rank": first["rank"]},
        [f"{first['finding']}: {first['text']}"],
        first["to_try"],
        Rows.of(findings, units_of(diagnosis.frames[0].columns), asked.first)
        if len(findings)
        else None,
        cannot_tell=[*untold, *lacks],
        next=_next(asked, [first, *others], verdict),
    )


def _cause(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first finding in fields; ``lost`` in ns."""
    fields = {"name": row["finding"]}
    fields |= {name: row[name] for name in ("share", "of", "detector", "confidence")}
    return {**fields, "lost_ns": row["lost"]}


def _next(asked: Asked, rows: Sequence[Mapping[str, Any]], verdict: str) -> list[Hint]:
    """Return the calls that have the evidence: of the first findings, or of the reason why nothing can
    be told."""
    profile = asked.profile
    if verdict == CANNOT_TELL and profile.merged_of is None and profile.of(losses):
        return [
            asked.hint(
                "ask", "how many kernels of each process are missing", question="lost_kernels"
            )
        ]
    if verdict == "healthy":
        return [asked.hint("advise", "what else could be saved")]
    calls = []
    for row in rows[:1] if verdict == CANNOT_TELL else rows:
        if row["finding"] == CANNOT_TELL and row is not rows[0]:
            continue
        hint = hints.evidence_of(asked, profile, row["finding"], row["detector"])
        if hint not in calls:
            calls.append(hint)
    where = {name: asked.given[name] for name in SELECTION if name in asked.given}
    return [Hint(hint.call, {**hint.arguments, **where}, hint.why) for hint in calls[:_FIRST]]


CALL = Call(
    name="diagnose",
    meaning="What bounds a run: the verdict (a cause, healthy, or cannot tell), its figures, what to try, and"
    " in `next` the calls that have the evidence. Begin here.",
    answer=answer,
    arguments={"run": RUN, **SELECTION, **TABLE},
)
