"""Finds the reports: every module of ``catalogue`` is one, and their order stands in the records."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from . import catalogue
from .report import Report
from .suggest import unknown

if TYPE_CHECKING:
    import polars as pl

    from opscope.profile import Profile


class UnknownReport(ValueError):
    """A report was asked for that does not exist; the message lists those that do."""


@cache
def reports() -> Mapping[str, Report]:
    """Every report by its name, in the order of output. Raises TypeError for a module that is none."""
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
    """Raise TypeError where two reports have the same name, alias or word of --by."""
    names: dict[str, str] = {}
    words: dict[str, str] = {}
    for one in found:
        taken = [(names, name) for name in (one.name, *one.aliases)]
        if one.by is not None:
            taken.append((words, one.by))
        for known, text in taken:
            if known.setdefault(text, one.name) != one.name:
                raise TypeError(
                    f"{text!r} is a name of the reports {known[text]!r} and {one.name!r}"
                )


@cache
def divisions() -> Mapping[str, Report]:
    """The words of --by, in their order, each with the report that divides the time so."""
    found = [one for one in reports().values() if one.by is not None]
    found.sort(key=lambda one: one.order if one.by_order is None else one.by_order)
    return MappingProxyType({str(one.by): one for one in found})


def forget() -> None:
    """Look for the reports anew when they are next asked for."""
    reports.cache_clear()
    divisions.cache_clear()


def divided(by: str) -> list[str]:
    """The reports that divide the time by each of these words, comma-separated. Raises UnknownReport."""
    made = []
    for word in filter(None, map(str.strip, by.split(","))):
        if word not in divisions():
            raise UnknownReport(f"--by: {unknown('division', word, divisions())}")
        made.append(divisions()[word].name)
    return made


def resolve(names: Iterable[str]) -> list[str]:
    """The reports' own names for these names and aliases, in order of output. Raises UnknownReport."""
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
    """Each named report's frame, the first ``top`` rows of it (None: all), in the order of output."""
    made = {name: reports()[name].frame(profile) for name in resolve(names)}
    return made if top is None else {name: frame.head(top) for name, frame in made.items()}
