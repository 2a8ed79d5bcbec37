"""The questions and reports by name, with the meaning of their rows, and a search for them by words."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from opscope.core.advice import ask
from opscope.core.question import index
from opscope.core.question.record import Report
from opscope.core.question.registry import UnknownReport, own_name, question, reports

_WORD: Final = re.compile(r"[a-z][a-z0-9]{2,}")
#: Words that people use, and the names of questions that they mean.
_MEANT: Final = {
    **dict.fromkeys(("fp16", "bf16", "fp32", "fp8", "half", "precision", "cores"), "dtype"),
    **dict.fromkeys(("leak", "leaks", "grows", "growing"), "growth"),
    **dict.fromkeys(("loader", "dataloader", "loading", "input"), "preparation"),
    **dict.fromkeys(("copy", "copies", "transfer", "transfers", "h2d", "d2h"), "memops"),
    **dict.fromkeys(("compile", "compiles", "compiling", "recompiles"), "recompilations"),
    **dict.fromkeys(("code", "lines"), "source"),
    **dict.fromkeys(("slowest", "hot", "hottest", "heaviest"), "by_op"),
}
#: Words that ask for a difference.
_CHANGES: Final = re.compile(
    r"\b(chang|compar|regress|than before|slower than|faster than|differ)", re.I
)
#: Words of a question that do not show its subject.
_PLAIN: Final = frozenset(
    {"and", "are", "does", "each", "for", "from", "how", "its", "per", "that", "the", "was", "what"}
    | {"where", "which", "why", "with"}
)
#: The most questions that a search returns.
_MOST: Final = 12


def names() -> list[str]:
    """Return the names that can be asked: those of reports, and of questions without one."""
    shown = {*index.REPORTS, *index.REPORTS.values()}
    return [
        *index.REPORTS,
        *(name for name in index.QUESTIONS if name not in shown and _is_textual(name)),
    ]


def _is_textual(name: str) -> bool:
    """Whether a question can be asked without a value that only Python has."""
    return all(each.textual for each in question(name).parameters.values())


def report(name: str) -> Report | None:
    """Return the report of this name, else that of a question of this name; None without either."""
    clean = name.strip().lower().replace("-", "_")
    try:
        return reports()[own_name(clean)]
    except UnknownReport:
        pass
    if clean not in index.QUESTIONS or not _is_textual(clean):
        return None
    of = question(clean)
    for each in of.reports:
        if not each.asked:
            return each
    unlisted = Report(name=clean, title=of.frames[0].row, empty="no rows", question=of)
    return unlisted


@cache
def entries() -> tuple[tuple[str, str], ...]:
    """Return each name with the meaning of a row of its answer."""
    rows = []
    for name in names():
        record = report(name)
        assert record is not None
        rows.append((name, record.holds.row))
    return tuple(rows)


def search(words: str) -> list[tuple[str, str]]:
    """Return the questions with most of the words in their names, titles and rows, the best first."""
    wanted = _wanted(words)
    scored = []
    for position, (name, row) in enumerate(entries()):
        record = report(name)
        title = "" if record is None else record.title
        of_name = {_stem(word) for word in _WORD.findall(name.replace("_", " "))}
        of_text = {_stem(word) for word in _WORD.findall(f"{title} {row}".lower())}
        score = 3 * len(wanted & of_name) + len(wanted & of_text)
        if score:
            scored.append((-score, position, name, row))
    return [(name, row) for _, _, name, row in sorted(scored)[:_MOST]]


def _wanted(words: str) -> set[str]:
    """Return the stems of the telling words, and of the names that they mean."""
    said = set(_WORD.findall(words.lower())) - _PLAIN
    meant = {part for word in said & set(_MEANT) for part in _MEANT[word].split("_")}
    return {_stem(word) for word in said | meant}


def detectors(words: str) -> list[str]:
    """Return the detectors with most of the words in their names, the best first."""
    wanted = _wanted(words)
    scores = {
        name: len(wanted & {_stem(part) for part in name.split("_")}) for name in ask.detectors()
    }
    best = max(scores.values(), default=0)
    return sorted(name for name in scores if scores[name] == best > 0)


def asks_for_changes(words: str) -> bool:
    """Whether words ask for a difference of two runs."""
    return bool(_CHANGES.search(words))


def _stem(word: str) -> str:
    return word[:-1] if word.endswith("s") and len(word) > 3 else word
