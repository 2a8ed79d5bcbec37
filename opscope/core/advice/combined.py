"""What all findings save together, by one replay of the timeline, and their evidence as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import polars as pl

from opscope.core.advice.ask import Said, Simulate, refused
from opscope.core.advice.finding import EVIDENCE, Edit
from opscope.core.advice.said import said_by, simulate
from opscope.core.analysis.answers import Answers
from opscope.core.question import parameters
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns

SCHEMA: Final[Mapping[str, type[pl.DataType]]] = MappingProxyType(
    {
        "wall_time": pl.Int64,
        "new_wall_time": pl.Int64,
        "saving": pl.Int64,
        "saving_share": pl.Float64,
        "step_saving": pl.Int64,
        "simulated": pl.Int64,
        "not_simulated": pl.Int64,
        "omitted": pl.String,
        "reason": pl.String,
    }
)
NO_TIMELINE: Final = "the trace has no timeline to replay"
NO_EDIT: Final = "no finding says what its change does to the timeline"
NO_FINDING: Final = "there is no finding"


def combined(
    answers_said: Sequence[Said], simulate: Simulate, wall_time: int | None
) -> pl.DataFrame:
    """Return in one row what all findings save together (SCHEMA; ns), or null and the reason.

    ``wall_time`` is the wall time of the window. Where several changes touch the same work the smallest
    factor counts. A finding that can save nothing is not among those left out.
    """
    findings = [said for said in answers_said if said.finding is not None]
    edits = [
        (finding.detector, finding.finding.edit)
        for finding in findings
        if finding.finding and finding.finding.edit
    ]
    reason = NO_FINDING if not findings else NO_TIMELINE if edits else NO_EDIT
    alone = [finding.times for finding in findings if finding.times is not None]
    times: pl.DataFrame | None
    if len(edits) == len(alone) == 1:  # nothing to combine it with
        times = alone[0]
    else:
        edits, times = _replay(edits, simulate)
    done = [id(edit) for _, edit in edits] if times is not None else []
    omitted = [
        finding.detector
        for finding in findings
        if finding.finding and id(finding.finding.edit) not in done
    ]
    row: dict[str, Any] = {"simulated": len(done), "not_simulated": len(omitted)}
    row["wall_time"], row["omitted"] = wall_time, ", ".join(dict.fromkeys(omitted)) or None
    if times is None or times.is_empty():
        row["reason"] = reason
    else:
        row_of_times = times.row(0, named=True)
        names = ("wall_time", "new_wall_time", "saving", "saving_share")
        row |= {name: row_of_times[name] for name in names}
        steps = times["saving"][1:].median()
        row["step_saving"] = None if steps is None else round(float(steps))  # type: ignore[arg-type]
    filled = {name: row.get(name) for name in SCHEMA}
    return pl.DataFrame([filled], schema=dict(SCHEMA), orient="row")


def _replay(
    edits: list[tuple[str, Edit]], simulate: Simulate
) -> tuple[list[tuple[str, Edit]], pl.DataFrame | None]:
    """Return the edits that fit the trace, each with its detector, and the times with all of them."""
    if not edits:
        return edits, None
    try:
        return edits, simulate([edit for _, edit in edits])
    except Exception:  # noqa: BLE001 - one detector's edit must not cost the others' estimate
        fit = []
        for detector, edit in edits:
            try:
                simulate([edit])
            except Exception:  # noqa: BLE001 - as above
                refused(detector)
            else:
                fit.append((detector, edit))
        return _replay(fit, simulate) if len(fit) < len(edits) else (edits, None)


def evidence(answers_said: Sequence[Said]) -> pl.DataFrame:
    """Return the rows of the findings' evidence, with each finding's number and detector."""
    schema = {
        "number": pl.Int64(),
        "detector": pl.String(),
        **{k: v() for k, v in EVIDENCE.items()},
    }
    parts = [pl.DataFrame(schema=schema)]
    for number, said in enumerate(answers_said, 1):
        rows = said.finding.rows if said.finding is not None else None
        if rows is None:
            continue
        columns = [
            pl.col(name).cast(kind, strict=False)
            if name in rows.columns
            else pl.lit(None, kind).alias(name)
            for name, kind in EVIDENCE.items()
        ]
        named = rows.select(*columns).with_columns(
            number=pl.lit(number), detector=pl.lit(said.detector)
        )
        parts.append(named.select(pl.col(name).cast(kind) for name, kind in schema.items()))
    return pl.concat(parts)


def answer(profile: Answers, detectors: Sequence[str] | None = None) -> pl.DataFrame:
    """What all findings save together: one replay of the timeline with all of their changes.

    Where several changes touch the same work, the one that leaves least of it counts. A finding that
    does not say what its change does to the timeline is left out, and named. Without a replay the times
    are null, and ``reason`` says why. ``detectors``: as for ``advice()``.
    """
    said = said_by(profile, detectors)
    wall = profile.summary()["wall_time"][0]
    return combined(said, lambda edits: simulate(profile, edits), wall)


def answer_evidence(profile: Answers, detectors: Sequence[str] | None = None) -> pl.DataFrame:
    """The evidence of each finding of ``advice()`` as rows, by the finding's ``number``.

    ``detectors``: as for ``advice()``.
    """
    return evidence(said_by(profile, detectors))


QUESTION = (
    Question(
        answer=answer,
        frames=(
            Frame(
                "advice_combined()",
                "one row: the timeline replayed with the changes of all findings",
                columns(
                    "wall_time new_wall_time saving saving_share step_saving simulated "
                    "not_simulated omitted reason",
                    """
                    new_wall_time: ns: time that it would take with all changes
                    saving: ns: wall_time - new_wall_time; null if nothing could be replayed
                    step_saving: ns: median over the steps of what the changes save of each; null without
                        steps
                    simulated: count: findings whose change was replayed
                    not_simulated: count: findings whose change could not be replayed
                    omitted: text: the detectors whose findings could not be replayed
                    reason: text: why saving is null
                    """,
                ),
            ),
        ),
        parameters={"detectors": parameters.words("ask these detectors alone")},
        reports=(
            Report(
                name="advice_combined",
                title="All advice together",
                empty="no finding",
                sums="",
                single=True,
            ),
        ),
    ),
    Question(
        answer=answer_evidence,
        frames=(
            Frame(
                "advice_evidence()",
                "one row per piece of evidence of a finding, the finding with most saving first",
                columns(
                    "number detector op_id op kernel direction layer source inputs dtypes "
                    "process device step count time detail",
                    """
                    op_id: number: id of the range of an op of the row; null if there is none
                    kernel: text: the kernel's name
                    device: number: the device's number
                    count: count: how many the row stands for
                    detail: text: what else there is to say of the row
                    """,
                ),
            ),
        ),
        parameters={"detectors": parameters.words("ask these detectors alone")},
        reports=(
            Report(
                name="advice_evidence",
                title="Evidence of the advice",
                empty="no finding has evidence in rows",
                shown="number detector op kernel layer source count time inputs detail",
                sums="",
            ),
        ),
    ),
)
