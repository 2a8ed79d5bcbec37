"""Find the reports: every module of ``catalogue`` is one; the records contain their order."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from opscope.core.not_merged import NotMerged
from opscope.core.question.suggest import unknown

from . import catalogue
from .report import Report
from .several import made

if TYPE_CHECKING:
    import polars as pl

    from opscope.profile import Profile


class UnknownReport(ValueError):
    """The named report does not exist; the message lists the reports."""


@cache
def reports() -> Mapping[str, Report]:
    """Return every report by its name, in the order of output.

    Raises TypeError for a module that defines no report, and if two reports share a name.
    """
    found = []
    for module in pkgutil.iter_modules(catalogue.__path__):
        place = f"{catalogue.__name__}.{module.name}"
        record = getattr(import_module(place), "REPORT", None)
        if not isinstance(record, Report) or record.name != module.name:
            raise TypeError(f"{place} defines no REPORT named {module.name!r}")
        found.append(record)
    found.sort(key=lambda one: (one.order, one.name))
    _refuse_twice(found)
    return MappingProxyType({one.name: one for one in found})


def _refuse_twice(found: Iterable[Report]) -> None:
    """Raise TypeError if two reports have the same name, alias or word of --by."""
    names: dict[str, str] = {}
    words: dict[str, str] = {}
    for one in found:
        taken = [(names, name) for name in (one.name, *one.aliases)]
        if one.by is not None:
            taken.append((words, one.by))
        for known, text in taken:
            if known.setdefault(text, one.name) != one.name:
                raise TypeError(
                    f"{text!r} is a name of two reports: {known[text]!r} and {one.name!r}"
                )


@cache
def divisions() -> Mapping[str, Report]:
    """Return the words of --by in their order, each with the report that divides the time by it."""
    found = [one for one in reports().values() if one.by is not None]
    found.sort(key=lambda one: one.order if one.by_order is None else one.by_order)
    return MappingProxyType({str(one.by): one for one in found})


def forget() -> None:
    """Clear the caches, so that the next call looks for the reports again."""
    reports.cache_clear()
    divisions.cache_clear()


def divided(by: str) -> list[str]:
    """Return the reports that divide the time by these comma-separated words. Raises UnknownReport."""
    words = []
    for word in filter(None, map(str.strip, by.split(","))):
        if word not in divisions():
            raise UnknownReport(f"--by: {unknown('division', word, divisions())}")
        words.append(divisions()[word].name)
    return words


def resolve(names: Iterable[str]) -> list[str]:
    """Return the reports' own names for these names and aliases, in order of output. Raises UnknownReport."""
    aliases = {alias: one.name for one in reports().values() for alias in one.aliases}
    wanted: set[str] = set()
    for name in names:
        clean = name.strip().lower().replace("-", "_")
        clean = aliases.get(clean, clean)
        if clean not in reports():
            raise UnknownReport(unknown("report", name, reports()))
        wanted.add(clean)
    return [name for name in reports() if name in wanted]


def frames(
    profile: Profile, names: Iterable[str], top: int | None = None
) -> dict[str, pl.DataFrame]:
    """Return the first ``top`` rows (None: all) of each named report's frame, in the order of output.

    Where reports of the critical path are among them, the notes have what it takes for granted. A report
    that a profile made from partials lacks is left out.
    """
    wanted = resolve(names)
    of_path = profile.merged_of is None and any(name.startswith("critical_") for name in wanted)

    def frame(name: str) -> pl.DataFrame | None:
        try:
            if name == "notes":
                return profile.notes(critical_path=of_path)
            return reports()[name].frame(profile)
        except NotMerged:
            return None

    found = made(wanted, frame)
    return {
        name: one if top is None else one.head(top)
        for name, one in found.items()
        if one is not None
    }
