"""Advice in words: the sentences of a finding, what all findings save together, and both as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from opscope.core.question import units

if TYPE_CHECKING:
    import polars as pl

Row = Mapping[str, Any]
#: What Markdown, or a cell of its tables, takes for markup.
_MARKUP: Final = re.compile(r"([\\`*_\[\]|#~>])")

#: Of so many detectors that found nothing each has a line.
_EACH: Final = 3


def sentences(row: Row) -> Iterator[tuple[str, str]]:
    """Yield what a row of ``advice()`` says: finding, where, change, saving, confidence, by these words."""
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
    part = "" if share is None else f" ({units.share(share)} of the window)"
    return f"about {units.time(row['saving'])}{part}, {bounds}"


def together(row: Row) -> str:
    """Return in one sentence what all findings save together: ``row`` is that of ``advice_combined()``."""
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


def rest(frame: pl.DataFrame) -> Iterator[str]:
    """Yield a line for what no detector could tell, each, and one for those that found nothing.

    Of up to three that found nothing the line says what a finding needs.
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
            if others:  # code: as it stands, in a fence that it cannot close
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
