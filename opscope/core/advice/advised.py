"""Advice in words: one line per finding, its sentences, what all findings save together, and Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from opscope.core.advice.diagnosis_rows import HEALTHY
from opscope.core.analysis.host.light_diagnosis import CANNOT_TELL
from opscope.core.question import units

if TYPE_CHECKING:
    import polars as pl

Row = Mapping[str, Any]
#: Characters that Markdown, or a cell of its tables, treats as markup.
_MARKUP: Final = re.compile(r"([\\`*_\[\]|#~>])")

#: Number of findings that are listed, and of those that have two lines; and the longest lines.
LISTED: Final = 6
_IN_FULL: Final = 3
_CHANGE: Final = 160
_SHORT: Final = 80
#: Up to this many detectors that found nothing have a line each.
_EACH: Final = 3


def sentences(row: Row) -> Iterator[tuple[str, str]]:
    """Yield a row of ``advice()`` in words: finding, where, change, saving, confidence."""
    yield "finding", str(row["finding"])
    yield "where", str(row["evidence"] or "")
    yield "change", str(row["recommendation"] or "")
    yield "saving", f"{saving(row)}. {row['reasoning'] or ''}".strip()
    yield "confidence", str(row["confidence"] or "")


def saving(row: Row) -> str:
    """Return the saving in words: ``about 1.2 ms (3.4 % of the window), between 0 ns and 5.0 ms``; of an
    estimate of nothing ``none expected, between …``."""
    least, most = units.time(row["saving_least"]), row["saving_most"]
    bounds = f"at least {least}" if most is None else f"between {least} and {units.time(most)}"
    if most is None and not row["saving_least"]:
        bounds = "not bounded"
    if row["saving"] is None:
        return bounds if row["saving_most"] is not None else f"not known; {bounds}"
    if row["saving"] <= 0:
        return "none" if most == 0 else f"none expected, {bounds}"
    share = row["saving_share"]
    part = "" if share is None else f" ({units.share(share)} of all of the wall time)"
    step = _of_a_step(row)
    return f"about {units.time(row['saving'])}{part}{f', {step}' if step else ''}, {bounds}"


def _of_a_step(row: Row) -> str:
    """Return what a finding saves of a median step: ``about 1.2 ms of a median step (3.4 %)``."""
    if row["step_saving"] is None or row["saving"] is None:
        return ""
    part = "" if row["step_share"] is None else f" ({units.share(row['step_share'])})"
    return f"about {units.time(row['step_saving'])} of a median step{part}"


def brief(
    advice: pl.DataFrame,
    combined: pl.DataFrame,
    evidence: pl.DataFrame,
    diagnosis: pl.DataFrame | None,
    top: int | None = LISTED,
) -> Iterator[str]:
    """Yield the lines of the ranked list: two for each of the first three findings, one for each other; then
    what all save together, and how many detectors cannot tell. ``diagnosis`` is that of the whole list."""
    rows = [] if diagnosis is None else diagnosis.to_dicts()
    verdict = {row["finding"]: row for row in rows}
    findings = [row for row in advice.to_dicts() if row["outcome"] == "found"]
    for row in rows[:1]:
        if row["finding"] in (HEALTHY, CANNOT_TELL):
            yield units.text(f"{row['finding']}: {row['text']}")
            if row["to_try"] and (row["finding"] == CANNOT_TELL or not findings):
                yield units.text(f"   try: {row['to_try']}")
    places = _places(evidence)
    for row in findings[:top]:
        change = _start(row["recommendation"] or "", _CHANGE)
        line = _line(row, verdict.get(row["cause"]), places.get(row["number"]))
        if row["number"] <= _IN_FULL:
            yield units.text(f"{line}; confidence {row['confidence']}")
            if change:
                yield units.text(f"   change: {change}")
        else:
            yield units.text(f"{line}; {row['confidence']}: {_start(change, _SHORT)}")
    others = findings[len(findings) if top is None else top :]
    if others:
        names = ", ".join(in_words(row["detector"]) for row in others)
        yield f"{len(others)} more, which save less or no time that is known (--all): {names}"
    if not findings:
        yield "no detector found anything to change"
    elif combined["saving"][0] is not None:
        row = combined.row(0, named=True)
        step = row["step_saving"]
        of_step = "" if step is None else f", {units.time(step)} of a median step"
        saved = f"save about {units.time(row['saving'])} of {units.time(row['wall_time'])}{of_step}"
        if row["saving"] <= 0:
            saved = f"save nothing of {units.time(row['wall_time'])}"
        yield f"All together {saved}, by a replay; savings overlap, and are not to be added up."
    outcomes = advice["outcome"].to_list()
    blind, content = outcomes.count("cannot tell"), outcomes.count("nothing found")
    yield (
        f"{units.counted(blind, 'detector')} cannot tell (--all says why), {content} found nothing; -v gives"
        " the reasoning."
    )


def _line(row: Row, cause: Row | None, where_: str | None) -> str:
    """Return in one line what a finding is, where it lies, and what it saves."""
    name = row["cause"] or in_words(row["detector"])
    if cause is not None:
        whose = "" if cause["rank"] is None else f" (rank {cause['rank']})"
        label = f"{name}{whose}: {re.split('; |: ', cause['text'])[0]}"
    else:
        label = name
    if where_ is not None and where_ not in label:
        label += f" at {where_}"
    step = _of_a_step(row)
    most = row["saving_most"]
    if row["saving"] is not None and row["saving"] <= 0:
        saves = "saves no time itself"
        # the change may save nothing: the file lacks what others wait for, or other work fills the
        # time
        if most:
            saves = f"saves nothing by a replay, at most {units.time(most)} of the run"
    elif step and row["step_saving"]:
        saves = f"saves {step}"
    elif row["saving"] is not None:
        part = "" if row["saving_share"] is None else f" ({units.share(row['saving_share'])})"
        saves = f"saves about {units.time(row['saving'])} of all of the wall time{part}"
    elif most and cause is None:
        saves = f"saves at most {units.time(most)} of the run"
    else:
        return f"{row['number']}. {label}"
    return f"{row['number']}. {label}; {saves}"


def _places(evidence: pl.DataFrame) -> dict[int, str]:
    """Return for each finding, by number, the place with most of its time: a source line, layer or op."""
    places: dict[int, str] = {}
    for name in ("source", "layer", "op"):
        for number, text in evidence.select("number", name).drop_nulls().rows():
            places.setdefault(number, str(text).split(" < ")[0])
    return places


def _start(text: str, width: int) -> str:
    """Return the first sentence of a text, or as much as fits; abbreviations do not end a sentence."""
    first = re.split(r"(?<=[^.\s]{2})\. (?=[A-Z])|\n", text.strip(), maxsplit=1)[0].rstrip(". ")
    return textwrap.shorten(first, width, placeholder=" …")


def together(row: Row) -> str:
    """Return in one sentence what all findings save together: ``row`` is the row of ``advice_combined()``."""
    left = f" Not simulated: {row['omitted']}." if row["omitted"] else ""
    if row["saving"] is None:
        return f"No estimate of all together: {row['reason']}.{left}"
    count = row["simulated"]
    which = (
        "1 finding, simulated, saves" if count == 1 else f"{count} findings simulated together save"
    )
    part = "" if row["saving_share"] is None else f", {units.share(row['saving_share'])}"
    step = row["step_saving"]
    steps = "" if step is None else f"; the median step ends {units.time(step)} sooner"
    return (
        f"Savings overlap and must not be added up: {which}"
        f" {units.time(row['saving'])} of {units.time(row['wall_time'])}{part}{steps}.{left}"
    )


def in_words(detector: str) -> str:
    """Return the name of a detector as words: ``unfused attention``."""
    return detector.replace("_", " ")


def rest(frame: pl.DataFrame) -> Iterator[str]:
    """Yield one line per detector that cannot tell, and one line for all that found nothing.

    If at most three found nothing, the line says for each of them what a finding needs.
    """
    nothing = []
    for row in frame.to_dicts():
        if row["outcome"] == "cannot tell":
            yield f"{row['detector']} cannot tell: {row['reason']}"
        elif row["outcome"] == "nothing found":
            nothing.append((row["detector"], row["threshold"]))
    if len(nothing) <= _EACH:
        for detector, threshold in nothing:
            needs = "" if threshold is None else f" (threshold: {threshold})"
            yield f"nothing found: {detector}{needs}"
    else:
        yield f"nothing found: {', '.join(detector for detector, _ in nothing)}"


def lines(row: Row) -> Iterator[str]:
    """Yield the lines in which a terminal shows a finding: its sentences, those below the first indented."""
    for label, text in sentences(row):
        first, *others = clean(text) or [""]
        if label == "finding":
            yield f"{row['number']}. {units.text(row['detector'])}: {first}"
        elif first or others:
            yield f"  {label}: {first}"
        yield from (f"    {other}" for other in others)


def clean(text: str) -> list[str]:
    """Return the lines of a text, in which nothing controls a terminal."""
    return units.visible(text, allowed="\n").splitlines()


def markdown(frame: pl.DataFrame, combined: pl.DataFrame, top: int | None = None) -> str:
    """Return the advice as Markdown: a table of the findings, their sentences, and the rest."""
    findings = [row for row in frame.to_dicts() if row["outcome"] == "found"]
    shown = findings[:top]
    lines_of_page = ["## Advice", ""]
    if findings:
        lines_of_page += [
            "| # | detector | saving | at most | confidence |",
            "|---:|---|---:|---:|---|",
        ]
        for row in shown:
            saves = "none expected" if row["saving"] == 0 else units.time(row["saving"])
            times_of_row = (saves, units.time(row["saving_most"]))
            cells = (str(row["number"]), row["detector"], *times_of_row, row["confidence"])
            lines_of_page.append(f"| {' | '.join(plain(str(cell)) for cell in cells)} |")
        more = len(findings) - len(shown)
        lines_of_page += ["", plain(together(combined.row(0, named=True))), ""]
        lines_of_page += [f"{more:,} findings more.", ""] if more else []
    else:
        lines_of_page += ["No detector found anything to change.", ""]
    for row in shown:
        lines_of_page += [f"### {row['number']}. {plain(row['detector'])}", ""]
        for label, text in sentences(row):
            first, *others = clean(text) or [""]
            if first or others:
                lines_of_page.append(f"- **{label}**: {plain(first)}")
            if others:  # code: unchanged, in a fence that it cannot close
                lines_of_page += [
                    "",
                    "  ~~~~~~text",
                    *(f"  {other}".replace("~~~", "") for other in others),
                ]
                lines_of_page += ["  ~~~~~~"]
        lines_of_page.append("")
    lines_of_page += [f"- {plain(text)}" for text in rest(frame)]
    return "\n".join(lines_of_page).rstrip() + "\n"


def plain(text: str) -> str:
    """Return a text of a trace for Markdown: one line, in which nothing is markup or HTML."""
    shown = " ".join(units.visible(text).split())
    return _MARKUP.sub(r"\\\1", shown.replace("&", "&amp;").replace("<", "&lt;"))
