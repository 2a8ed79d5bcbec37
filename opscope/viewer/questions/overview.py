"""``overview``: the figures of the first page, each from a report; unknown ones are null with a reason. The
answer is ``Overview`` of ``web/src/overview.ts``; with ``part=advice``, ``OverviewAdvice``. Both take
``steps``, ``device`` and ``rank``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import polars as pl

from opscope.core import progress
from opscope.core.advice import advised
from opscope.core.question.registry import reports
from opscope.reports import vendor_words
from opscope.viewer.cards import cards
from opscope.viewer.question import Asked, BadParameter, Question
from opscope.viewer.rows import plain

if TYPE_CHECKING:
    from opscope.profile import Profile
    from opscope.viewer.viewed import Viewed

#: Ops that the page lists.
_TOP: Final = 10
#: The rows of ``step_summary`` that divide a step; the others are the step itself and its phases.
_STEP: Final = "step"
#: Columns of texts that opscope wrote.
_OURS: Final = ("reason", "text", "to_try")
_PHASE: Final = "phase: "


def answer(asked: Asked) -> dict[str, Any]:
    """Return the figures, or the advice."""
    part = asked.text("part", "figures")
    if part not in _PARTS:
        raise BadParameter(f"part is {part[:40]!r}; it must be figures or advice")
    key = ("overview", part, asked.selection)
    part_answer: dict[str, Any] = asked.viewed.tables.get(key, lambda: _PARTS[part](asked.profile))
    return part_answer


def _figures(profile: Profile) -> dict[str, Any]:
    makers = (
        ("cards", cards),
        ("diagnosis", _diagnosis),
        ("steps", _steps),
        ("ops", lambda part: part.totals_by("op")),
        ("unattributed", _unattributed),
        ("warnings", _warnings),  # last: an analysis may add to the notes
    )
    figures: dict[str, Any] = {}
    with progress.stage("making the first page", len(makers)) as stage:
        for name, make in makers:
            figures[name] = make(profile)
            stage.add()
    steps, no_steps = figures["steps"]
    ops = figures["ops"]
    rest = ops["share"].slice(_TOP)
    return {
        "selected": profile.selected,
        "device": "CPU" if profile.cpu_only else "GPU",
        "cards": figures["cards"],
        "diagnosis": figures["diagnosis"],
        "steps": steps,
        "no_steps": no_steps,
        "top": _in_words(
            _rows(ops.head(_TOP), "op direction kind device_time share calls reason"), profile
        ),
        "ops": len(ops),
        "others_share": plain(rest.sum()) if len(rest) and not rest.null_count() else None,
        "no_ops": reports()["by_op"].empty if ops.is_empty() else None,
        "unattributed": figures["unattributed"],
        "warnings": figures["warnings"],
    }


def _diagnosis(profile: Profile) -> list[dict[str, Any]]:
    return _in_words(_rows(profile.diagnosis(), "rank finding share lost text to_try"), profile)


def _steps(profile: Profile) -> tuple[list[dict[str, Any]], str | None]:
    summary = profile.step_summary()
    counted = summary.filter(pl.col("steps") > 0)
    if counted.is_empty():
        return [], reports()["step_summary"].empty
    part = pl.col("part").cast(pl.String)
    parts = counted.filter((part != _STEP) & ~part.str.starts_with(_PHASE))
    return _rows(parts, "process rank part total share median"), None


def _unattributed(profile: Profile) -> dict[str, Any]:
    row = profile.summary().row(0, named=True)
    reasons = _rows(profile.unattributed(), "reason kernels copies time share")
    return {
        "time": plain(row["device_unattributed_time"]),
        "whole": plain(row["device_time"]),
        "reasons": _in_words(reasons, profile),
    }


def _warnings(profile: Profile) -> list[str]:
    notes = profile.notes().filter(pl.col("severity") != "info")
    of = vendor_words.vendor(profile)
    lines = (f"{row['severity']}: {row['what']}" for row in notes.to_dicts())
    return list(dict.fromkeys(vendor_words.said(line, of) for line in lines))


def _advice(profile: Profile) -> dict[str, Any]:
    frame = profile.advice()
    findings = frame.filter(pl.col("outcome") == "found")
    names = (
        "number detector finding recommendation time saving saving_share saving_least saving_most"
        " confidence"
    )
    rows = _rows(findings, names)
    for row, finding in zip(rows, findings.to_dicts(), strict=True):
        row["saving_text"] = advised.saving(finding)
    combined = profile.advice_combined()
    together = len(findings) and len(combined)
    return {
        "advice": rows,
        "together": advised.together(combined.row(0, named=True)) if together else None,
        "rest": list(advised.rest(frame)),
    }


def _in_words(rows: list[dict[str, Any]], profile: Profile) -> list[dict[str, Any]]:
    """Return the rows with opscope's own texts in the words of the devices' vendor."""
    of = vendor_words.vendor(profile)
    return [
        {
            name: vendor_words.said(value, of)
            if name in _OURS and isinstance(value, str)
            else value
            for name, value in row.items()
        }
        for row in rows
    ]


def _rows(frame: pl.DataFrame, names: str) -> list[dict[str, Any]]:
    return [plain(row) for row in frame.select(names.split()).to_dicts()]


def _store(viewed: Viewed) -> list[dict[str, str]]:
    return [{}, {"part": "advice"}]


_PARTS: Final = {"figures": _figures, "advice": _advice}
QUESTION = Question(name="overview", answer=answer, stored=_store)
