"""The ranked list: what bounds the run and what to change, by cost.

A cause is a part of the time (``causes``), a finding is a detector's; a finding that explains a cause is one
row with it. First are the *sure* rows: causes that are not borderline, and findings that save over 5 % of a
median step, at least or as an estimate of medium confidence or better. They are ranked by their cost in the
run, whether paid once or in each step. Then come borderline causes, and then the other findings, by what they
may save. The diagnosis is the first rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import polars as pl

from opscope.core.advice import ask
from opscope.core.advice.advised import in_words
from opscope.core.advice.ask import CANNOT_TELL, FOUND, NOTHING, Said, rank
from opscope.core.advice.commands import with_command
from opscope.core.advice.detectors import DOUBTING, NEVER_SURE
from opscope.core.advice.diagnosis import Causes
from opscope.core.advice.diagnosis_rows import BUSY, HEALTHY, IDLE, WORTH_A_CHANGE
from opscope.core.advice.diagnosis_words import BOUNDS, ns, share
from opscope.core.advice.finding import Finding
from opscope.core.advice.saying import ms
from opscope.core.analysis.host.in_words import NEARLY
from opscope.core.analysis.host.light_diagnosis import MEDIAN, WALL

Row = Mapping[str, Any]
#: A finding about a smaller part of a cause's time does not explain the cause.
EXPLAINED: Final = 0.25
#: The reasoning of a row without an estimate.
_REASONING: Final = (
    "Counted is what the cause takes of the time that is judged, of one of its devices: {} (lost of"
    " diagnosis()). At least nothing: other work may take its place; at most all of it."
)


def ranked(said: Sequence[Said], causes: Causes) -> tuple[Said, ...]:
    """Return causes and findings as one list, with the cost of each in a step and in the run; then the
    detectors that cannot tell, and those that found nothing.

    If the data allow no cause (``Causes.barred``), a detector that explains one cannot tell.
    """
    if causes.barred is not None:
        said = [_barred(entry, causes.barred) for entry in said]
    measured = [with_costs(entry, causes) for entry in said]
    if _is_unsure(causes):
        measured = [replace(entry, sure=False) for entry in measured]
    left = [entry for entry in measured if entry.outcome == FOUND]
    rows: list[Said] = []
    for cause in causes.rows:
        name = cause["finding"].removeprefix(NEARLY)
        mine = [
            entry
            for entry in left
            if name in ask.explains(entry.detector) and _enough(entry, cause)
        ]
        # findings about only this cause first, before those that concern another cause too
        best = min(
            mine,
            key=lambda entry: (ask.explains(entry.detector).index(name), _place(entry)),
            default=None,
        )
        if best is None:
            rows.append(_alone(cause))
        else:
            # the time of other findings that explain the same cause is a part of this one's own
            same = {id(entry) for entry in mine}
            left = [
                replace(entry, sure=False) if id(entry) in same else entry
                for entry in left
                if entry is not best
            ]
            rows.append(replace(best, cause=cause, sure=cause["sure"]))
    sure = [entry for entry in left if entry.sure]
    most = max(map(_cost, sure), default=None)
    rows = sorted([*rows, *left], key=lambda entry: _place(entry, most))
    order = (CANNOT_TELL, NOTHING)
    rest = [entry for entry in measured if entry.outcome != FOUND]
    rest.sort(key=lambda entry: (order.index(entry.outcome), entry.detector))
    return (*rows, *rest)


def _is_unsure(causes: Causes) -> bool:
    """Whether a detector's finding alone may not lead the list."""
    unknown = not causes.steps and causes.otherwise["finding"] == CANNOT_TELL
    return causes.barred is not None or unknown


def may_lead(detector: str, causes: Causes) -> bool:
    """Whether the diagnosis may show a finding of this detector, whatever it finds."""
    if detector in DOUBTING:
        return True
    if _explains_any(detector, causes):
        return True
    return not (_is_unsure(causes) or detector in NEVER_SURE)


def is_open(entry: Said, causes: Causes) -> bool:
    """Whether the diagnosis depends on the result of replaying a finding's edit."""
    finding = entry.finding
    if finding is None:
        return False
    if _explains_any(entry.detector, causes):
        return True
    if _is_unsure(causes) or (finding.confidence == "low" and not finding.saving_least):
        return False
    if finding.stands_out or finding.saving_least or causes.steps or finding.saving_most is None:
        return True
    return finding.saving_most > WORTH_A_CHANGE * causes.wall


def _explains_any(detector: str, causes: Causes) -> bool:
    """Whether a detector's findings explain a cause that was found; False where the data allow no cause."""
    causes_of = ask.explains(detector) if causes.barred is None else ()
    return any(row["finding"].removeprefix(NEARLY) in causes_of for row in causes.rows)


def with_costs(entry: Said, causes: Causes) -> Said:
    """Return a detector's answer with its finding's saving of a median step, and of the run."""
    finding = entry.finding
    if finding is None:
        return entry
    step = _of_a_step(entry, finding, causes)
    part = None if step is None or not causes.median else step / causes.median
    run_share = None
    if finding.saving is not None and causes.wall:
        run_share = finding.saving / causes.wall
    least = finding.saving_least / causes.steps / causes.median if _in_steps(finding, causes) else 0
    if not causes.steps and causes.wall:
        least, part = finding.saving_least / causes.wall, run_share
    likely = part is not None and part > WORTH_A_CHANGE and finding.confidence != "low"
    sure = least > WORTH_A_CHANGE or likely
    if finding.of == "run":
        sure = (run_share or 0) > BUSY and finding.confidence != "low"
    sure = sure or (finding.stands_out and finding.confidence != "low")
    return replace(entry, step_saving=step, step_share=part, saving_share=run_share, sure=sure)


def _in_steps(finding: Finding, causes: Causes) -> bool:
    return finding.of == "step" and causes.steps > 0 and causes.median > 0


def _of_a_step(entry: Said, finding: Finding, causes: Causes) -> int | None:
    """Return what a change saves of a median step (ns), which is no more than the step."""
    if not _in_steps(finding, causes):
        return None
    step = finding.step_saving
    if step is None and entry.times is not None and len(entry.times) > 1:
        # the replay's times of each step; the first row is the whole
        middle = entry.times["saving"][1:].median()
        step = None if middle is None else round(float(middle))  # type: ignore[arg-type]
    if step is None and finding.saving is not None:
        step = round(finding.saving / causes.steps)
    return None if step is None else max(0, min(step, causes.median))


def _barred(entry: Said, why: str) -> Said:
    """Replace a finding by the answer that it cannot tell: missing data come before any conclusion."""
    if entry.finding is None or not ask.explains(entry.detector):
        return entry  # the finding is about some work, or the recording, and names no cause of the time
    return Said(entry.detector, CANNOT_TELL, reason=why)


def _enough(entry: Said, cause: Row) -> bool:
    """Return whether a finding is about so much of a cause's time that it explains the cause."""
    assert entry.finding is not None
    return entry.finding.time >= EXPLAINED * (cause["lost"] or 0)


def _alone(cause: Row) -> Said:
    """Return a cause that no finding explains as a finding of its own, named after it."""
    of_step = cause["of"] == MEDIAN and cause["share"] is not None
    lost = cause["lost"] or 0
    finding = Finding(
        what=cause["text"],
        evidence="",
        recommendation=cause["to_try"] or "",
        time=lost,
        saving_least=0,
        saving_most=cause["lost"],
        reasoning=_REASONING.format(ms(lost)),
        confidence="medium" if cause["sure"] else "low",
        rows=pl.DataFrame({"time": [lost], "detail": [cause["finding"]]}) if lost else None,
        of="run" if cause["of"] == WALL else "step",
    )
    said = Said(cause["finding"], FOUND, finding, cause=cause, sure=cause["sure"])
    return replace(said, step_share=cause["share"] if of_step else None)


def _cost(entry: Said) -> int:
    """Return what a sure finding costs the run (ns)."""
    assert entry.finding is not None
    cost = entry.cause["lost"] if entry.cause is not None else entry.finding.saving
    least = entry.finding.time if entry.finding.stands_out else entry.finding.saving_least
    return int(cost or least)


def _place(entry: Said, most: int | None = None) -> tuple[int, int, int, str]:
    """Return the place in the list: first a sure finding that makes all others doubtful, then sure ones by
    their cost in the run, borderline causes, the others.

    ``most``: the largest cost of a sure finding that explains no cause. That finding may be why the kernels
    stay below their roof, so what bounds them comes after it.
    """
    assert entry.finding is not None
    if entry.sure:
        cost = _cost(entry)
        if entry.detector in BOUNDS and most is not None:
            cost = min(cost, most - 1)
        return 0, -int(entry.finding.doubts), -cost, entry.detector
    cost = entry.cause["lost"] if entry.cause is not None else 0
    if entry.cause is not None and entry.cause["finding"].startswith(NEARLY):
        return 1, 0, -int(cost or 0), entry.detector
    return 2, *rank(entry.finding), entry.detector


def diagnosed(said: Sequence[Said], causes: Causes, command: Sequence[str] | None) -> Iterator[Row]:
    """Yield the diagnosis (``FINDINGS``): the first rows of the list in words, or that nothing stands out, or
    that it cannot be told; then the other causes, and what cannot be told."""
    findings = [entry for entry in said if entry.finding is not None]
    first = [entry for entry in findings if entry.sure]
    unsure = [entry for entry in findings if not entry.sure and entry.cause is not None]
    near = [
        entry
        for entry in unsure
        if entry.cause
        and entry.cause["finding"].startswith(NEARLY)
        and not entry.cause["finding"].endswith(IDLE)
    ]
    doubts = [
        entry for entry in findings if entry.finding and entry.finding.doubts and not entry.sure
    ]
    rows: list[Row] = [*map(_row, first), *map(_row, near)]
    if doubts and not first and (near or causes.otherwise["finding"] == HEALTHY):
        rows = [*map(_row, doubts), *rows]  # a row near its limit, or below all limits, is in doubt
    else:
        rows = rows or [causes.otherwise]
        but = [f"; but {entry.finding.what}" for entry in doubts if entry.finding]
        rows[0] = {**rows[0], "text": rows[0]["text"] + "".join(but)}
    rows += [_row(entry) for entry in unsure if entry not in near]
    for row in (*rows, *causes.not_told):
        yield {**row, "to_try": with_command(row["to_try"], command)}


def _row(entry: Said) -> Row:
    """Return a finding in words; for a cause, with its detector's proposed change and place."""
    finding = entry.finding
    assert finding is not None
    line = where(entry)
    if entry.cause is not None:
        row = {**entry.cause, "confidence": finding.confidence}
        if entry.cause["finding"].removeprefix(NEARLY) == IDLE:
            return row | {"finding": CANNOT_TELL}
        if entry.detector != entry.cause["finding"]:
            row |= {"detector": entry.detector, "to_try": finding.recommendation}
            if line and line not in row["text"]:
                row["text"] += f"; at {line}"
        return row
    saves = ""
    if entry.step_share is not None and entry.step_saving is not None:
        shorter = f"{ns(entry.step_saving)} ({share(entry.step_share)}) shorter"
        saves = f"; without it a median step is about {shorter}"
    return {
        "process": None,
        "rank": None,
        "finding": in_words(entry.detector),
        "share": entry.saving_share if entry.step_share is None else entry.step_share,
        "of": WALL if entry.step_saving is None else MEDIAN,
        "lost": finding.saving,
        "text": finding.what + (f"; at {line}" if line else "") + saves,
        "to_try": finding.recommendation,
        "detector": entry.detector,
        "confidence": finding.confidence,
    }


def where(entry: Said) -> str | None:
    """Return the place with most of a finding's time: a source line, else a layer."""
    rows = entry.finding.rows if entry.finding is not None else None
    if rows is None or rows.is_empty():
        return None
    for name in ("source", "layer"):
        if name in rows.columns:
            for text in rows[name].drop_nulls():
                return str(text).split(" < ")[0]
    return None
