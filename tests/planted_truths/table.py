"""The table of planted truths: what was planted, what was said first, and how many are right."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.planted_truths.truth import Truth

REPORTS = "<!-- reports: begin -->", "<!-- reports: end -->"
_PLACES = (r"(?:/[\w.-]+)+/bin/python", "python"), (r"(?:/[\w.-]+)+/(?=[\w-]+\.py)", "")
BEGIN, END = "<!-- planted truths: begin -->", "<!-- planted truths: end -->"


def line(truth: Truth, kept: Mapping[str, Any]) -> str:
    """Return one trace's or program's outcome in a line."""
    if "error" in kept:
        return f"error: {kept['error']}"
    said, judged = kept["said"], kept["judged"]
    parts = [f"{truth.cause}: {judged['cause']}, said {said['first']}"]
    if truth.steps is not None:
        parts.append(f"steps {said['steps']} of {truth.steps}")
    if judged["phases"] is not None:
        parts.append(f"phases off by {100 * judged['phases']:.1f} %")
    if judged["late"] is not None:
        parts.append(f"lateness off by {100 * judged['late']:.0f} %")
    return "; ".join(parts)


def rows(folder: Path) -> Iterator[tuple[Truth, Mapping[str, Any]]]:
    """Yield each truth with what was said of it."""
    for path in sorted(folder.glob("*.truth.json")):
        said = path.with_name(path.name.replace(".truth.", ".said."))
        if said.is_file():
            yield Truth.read(path), json.loads(said.read_text())


def sums(folder: Path) -> dict[str, str]:
    """Return the counts for which there are goals."""
    all_ = list(rows(folder))
    judged = [(truth, kept.get("judged", {"cause": "missed"})) for truth, kept in all_]
    words = [each["cause"] for _, each in judged]
    steps = [each.get("steps") for truth, each in judged if truth.steps is not None]
    phases = [(truth, each.get("phases")) for truth, each in judged if truth.phases is not None]
    late = [each.get("late") for truth, each in judged if truth.late is not None]
    near = [value is not None and value <= truth.within for truth, value in phases]
    return {
        "cause first": f"{words.count('right')} of {len(words)}",
        "named later": str(words.count("later")),
        "missed": str(words.count("missed")),
        "false": str(words.count("false")),
        "steps exact": f"{sum(map(bool, steps))} of {len(steps)}",
        "phases within 2 %": f"{sum(near)} of {len(near)}",
        "lateness within 10 %": f"{sum(v is not None and v <= 0.1 for v in late)} of {len(late)}",
    }


def markdown(folder: Path) -> str:
    """Return the counts and the table."""
    lines = [f"Made by `scripts/planted_truths.py` on {datetime.date.today()}.", ""]
    lines += ["| what | count |", "|---|---:|"]
    lines += [f"| {name} | {value} |" for name, value in sums(folder).items()]
    lines += [
        "",
        "| program or trace | truth | said first | cause | steps: truth, said | largest error of a phase |",
        "|---|---|---|---|---|---:|",
    ]
    for truth, kept in rows(folder):
        if "error" in kept:
            lines.append(
                f"| {truth.name} | {truth.cause} | error: {kept['error'][:60]} | missed | {truth.steps}, – | – |"
            )
            continue
        said, judged = kept["said"], kept["judged"]
        phases = "–" if judged["phases"] is None else f"{100 * judged['phases']:.1f} %"
        lines.append(
            f"| {truth.name} | {truth.cause} | {said['first']} | {judged['cause']} |"
            f" {_number(truth.steps)}, {_number(said['steps'])} | {phases} |"
        )
    return "\n".join(lines) + "\n"


def _number(value: int | None) -> str:
    return "–" if value is None else str(value)


def write(folder: Path, page: Path) -> None:
    """Write the table and the reports into their places in a page."""
    text = page.read_text()
    for (begin, end), made in (((BEGIN, END), markdown(folder)), (REPORTS, reports(folder))):
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{made}{end}{after}"
    page.write_text(text)


def reports(folder: Path) -> str:
    """Return the first tables of the report of each program in its larger size, as the command prints them."""
    lines = []
    for truth, _ in rows(folder):
        if truth.made != "program" or truth.size != 1:
            continue
        path = folder / f"{truth.name}.opscope"
        command = [sys.executable, "-m", "opscope", "report", str(path), "--top", "3", "-w", "0"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        shown = (
            re.split(r"\n(?:Summary|Where the time went)", done.stdout)[0]
            .rstrip()
            .replace(f"{folder}/", "")
        )
        for place, name in _PLACES:  # what is below a folder of this machine
            shown = re.sub(place, name, shown)
        lines += [
            f"### {truth.what[0]} {' '.join(truth.what[1:])}",
            "",
            f"The truth: {truth.cause}.",
            "",
        ]
        lines += ["```text", shown, "```", ""]
    return "\n".join(lines)
