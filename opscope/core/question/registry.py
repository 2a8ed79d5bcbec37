"""Find the questions and their reports by name; each is loaded when it is first needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TypeVar

from . import index
from .column import Frame
from .parameters import WrongParameter, parts
from .record import Question, Report, Rows, Sums
from .suggest import unknown

_How = TypeVar("_How", Sums, Rows)


class UnknownReport(ValueError):
    """The named report does not exist; the message lists the reports."""


@cache
def question(name: str) -> Question:
    """Return the question with this name.

    Raises KeyError for an unknown name, TypeError for a module that does not define it.
    """
    module = index.QUESTIONS[name]
    record = getattr(import_module(module), "QUESTION", None)
    records = record if isinstance(record, tuple) else (record,)
    for one in records:
        if isinstance(one, Question) and one.name == name:
            return one
    raise TypeError(f"{module} defines no QUESTION named {name!r}")


class Reports(Mapping[str, Report]):
    """Every report by its name, in the order of output; its question is loaded when it is looked up."""

    def __getitem__(self, name: str) -> Report:
        of = question(index.REPORTS[name])
        for report in of.reports:
            if report.name == name:
                return report
        raise TypeError(f"the question {of.name!r} has no report named {name!r}")

    def __iter__(self) -> Iterator[str]:
        return iter(index.REPORTS)

    def __len__(self) -> int:
        return len(index.REPORTS)


def reports() -> Mapping[str, Report]:
    """Return every report by its name, in the order of output."""
    return Reports()


def divisions() -> Mapping[str, str]:
    """Return the words of --by in their order, each with the report that divides the time by it."""
    return index.DIVISIONS


def frames() -> Iterator[Frame]:
    """Yield every frame that a Profile returns, in the order of the questions."""
    for name in index.QUESTIONS:
        yield from question(name).frames


def merging(kind: type[_How]) -> Iterator[tuple[Question, _How]]:
    """Yield how the questions that merge in this way (a class of ``record``) do so, in the order of the
    questions."""
    for name in index.QUESTIONS:
        of = question(name)
        for how in of.merged if isinstance(of.merged, Sequence) else (of.merged,):
            if isinstance(how, kind):
                yield of, how


def divided(by: str) -> list[str]:
    """Return the reports that divide the time by these comma-separated words. Raises UnknownReport."""
    words = []
    for word in filter(None, map(str.strip, by.split(","))):
        if word not in index.DIVISIONS:
            raise UnknownReport(f"--by: {unknown('division', word, index.DIVISIONS)}")
        words.append(index.DIVISIONS[word])
    return words


def chosen(names: Iterable[str]) -> dict[str, Report]:
    """Return the reports that these names and aliases mean, by the reports' own names, in the order of
    output.

    A name may have parameters (``short_kernels:below=5us``, ``idle:by=stream:kernel_wait=50us``). Raises
    UnknownReport, and WrongParameter for a parameter that its question refuses.
    """
    wanted: dict[str, Report] = {}
    for text in names:
        name, given = parts(text)
        own = own_name(name)
        report = reports()[own]
        if given:
            report = report.asking(given)
        if wanted.setdefault(own, report) != report:
            raise WrongParameter(f"{own} is asked for twice, with different parameters")
    return {name: wanted[name] for name in index.REPORTS if name in wanted}


def named(names: Iterable[str] | Mapping[str, Report]) -> Mapping[str, Report]:
    """Return the reports with these own names; a mapping is returned unchanged."""
    if isinstance(names, Mapping):
        return names
    return {name: reports()[name] for name in names}


def first() -> dict[str, Report]:
    """Return the reports of the first screen."""
    return {name: reports()[name] for name in index.FIRST}


def own_name(name: str) -> str:
    """Return the report's own name for a name or an alias. Raises UnknownReport."""
    clean = name.strip().lower().replace("-", "_")
    if clean in index.REPORTS:
        return clean
    for own, report in reports().items():
        if clean in report.aliases:
            return own
    raise UnknownReport(unknown("report", name, index.REPORTS))


def forget() -> None:
    """Clear the cache, so that questions are looked up again."""
    question.cache_clear()
