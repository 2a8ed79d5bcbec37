"""``advise``: what to change, what it would save, and the evidence as rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from opscope.agents import hints
from opscope.agents.answer import Answer, Rows
from opscope.agents.call import RUN, SELECTION, TABLE, Argument, Asked, Call
from opscope.agents.parts import cannot_tell, units_of
from opscope.core.advice import ask
from opscope.core.advice.advised import together
from opscope.core.question.parameters import WrongParameter, parts
from opscope.core.question.registry import question
from opscope.core.question.suggest import unknown

#: Number of findings in the list whose evidence is named.
_FIRST: Final = 3
_LIST: Final = ("detector", "cause", "finding", "step_saving", "step_share", "saving", "saving_least",
                "saving_most", "confidence")  # fmt: skip
_BOUNDS: Final = ("saving", "saving_least", "saving_most", "step_saving")


def answer(asked: Asked) -> Answer:
    """Answer with the findings of the detectors; for a single finding, with its evidence as rows."""
    names = asked.given.get("detectors")
    for text in names or ():
        name = parts(text)[0]
        if name not in ask.detectors():
            raise WrongParameter(unknown("detector", name, ask.detectors()))
    profile = asked.profile
    frame = profile.ask(question("advice"), names)
    findings = frame.filter(pl.col("outcome") == ask.FOUND)
    untold = frame.filter(pl.col("outcome") == ask.CANNOT_TELL)
    lacks = [f"{row['detector']}: {row['reason']}" for row in untold.to_dicts()]
    lacks = [*cannot_tell(profile), *lacks]
    if len(findings) == 1:
        return _single(asked, findings.row(0, named=True), lacks)
    units = units_of(question("advice").frames[0].columns)
    combined = profile.ask(question("advice_combined"), names).row(0, named=True)
    nothing = frame.filter(pl.col("outcome") == ask.NOTHING)["detector"].to_list()
    said = (
        [together(combined)]
        if len(findings)
        else [f"nothing calls by: {', '.join(nothing) or 'none'}"]
    )
    calls = [
        asked.hint("advise", "its evidence", detectors=[name])
        for name in findings["detector"].unique(maintain_order=True)[:_FIRST]
        if [name] != names and name in ask.detectors()
    ]
    rows = Rows.of(findings.select(_LIST), units, asked.first) if len(findings) else None
    return Answer(
        asked.call.name, asked.run.name, said=said, rows=rows, cannot_tell=lacks, next=calls
    )


def _single(asked: Asked, row: Mapping[str, Any], lacks: list[str]) -> Answer:
    """Return one finding: its text, how its saving was computed, and its evidence as rows."""
    profile = asked.profile
    record = question("advice_evidence")
    evidence = profile.ask(record, asked.given.get("detectors"))
    evidence = evidence.drop("number", "detector", "op_id")
    columns = [name for name in evidence.columns if evidence[name].null_count() < len(evidence)]
    evidence = evidence.select(columns)
    finding = {
        "detector": row["detector"],
        "cause": row["cause"],
        "confidence": row["confidence"],
        **{f"{name}_ns": row[name] for name in _BOUNDS},
    }
    places = [row["evidence"]] if row["evidence"] else []
    calls = hints.source_of(asked, evidence)
    if not calls:
        causes = [row["cause"]] if row["cause"] else ask.explains(row["detector"])[:1]
        calls = [hints.evidence_of(asked, profile, cause, None) for cause in causes]
    units = units_of(record.frames[0].columns)
    return Answer(
        asked.call.name,
        asked.run.name,
        finding=finding,
        where=hints.where(evidence, hints.ranks_of(profile)),
        said=[row["finding"], *places, row["reasoning"]],
        to_try=row["recommendation"],
        rows=Rows.of(evidence, units, asked.first) if columns else None,
        cannot_tell=lacks,
        next=calls,
    )


CALL = Call(
    name="advise",
    meaning="What to change in the program and what that would save (best estimate and bounds, ns). With one"
    " detector: its evidence as rows.",
    answer=answer,
    arguments={
        "run": RUN,
        "detectors": Argument("texts", "ask these detectors alone, as diagnose names them"),
        **SELECTION,
        **TABLE,
    },
    subject="detectors",
)
