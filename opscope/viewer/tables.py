"""The tables that pages show: every report, each op and kernel alone, and the difference of two runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import polars as pl

from opscope.core.question import registry, suggest
from opscope.core.question.column import Column, Frame
from opscope.core.question.parameters import WrongParameter, parts
from opscope.core.question.record import ADDITIVE, Report
from opscope.profile.difference import difference_of as differs
from opscope.reports import difference

from .question import BadParameter

if TYPE_CHECKING:
    from opscope.core.analysis.diff.tables import Difference
    from opscope.profile import Profile

    from .question import Asked


@dataclass(frozen=True, slots=True)
class Kind:
    """A table: its texts, and how its frame is made for a question."""

    name: str
    title: str
    holds: Frame
    empty: str
    shown: tuple[str, ...]
    frame: Callable[[Asked], pl.DataFrame]
    #: The columns whose values add up over the rows.
    sums: str = ADDITIVE
    #: The parameters of its report, as text: with other parameters the report is another table.
    asked: tuple[tuple[str, str], ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The documented columns, in order."""
        return self.holds.columns

    def additive(self, column: str) -> bool:
        """Whether the values of ``column`` may be added up over the rows."""
        return column in self.sums.split()


def _of_profile(make: Callable[[Profile], pl.DataFrame]) -> Callable[[Asked], pl.DataFrame]:
    return lambda asked: make(asked.profile)


def _each(name: str, title: str, method: str, empty: str, shown: str, sums: str = ADDITIVE) -> Kind:
    """A table with a row for each op, kernel or copy that ran."""
    frame = registry.question(method).frames[0]
    return Kind(
        name,
        title,
        frame,
        empty,
        tuple(shown.split()),
        _of_profile(lambda profile: getattr(profile, method)()),
        sums,
    )


@cache
def _all_rows() -> tuple[Kind, ...]:
    """The tables that no report has, as there may be millions of rows: pages ask for ranges of rows."""
    return (
        _each(
            "each_op",
            "Ops, each call",
            "ops",
            "no ops were recorded",
            "op direction device_time self_time cpu_time start layer inputs flops kernels source",
            "self_time",
        ),
        _each(
            "each_kernel",
            "Kernels, each execution",
            "kernels",
            "no kernels in this profile: no GPU was used, or kernels were not captured",
            "name duration start stream op layer step direction flops bytes tensor_core reason",
        ),
        _each(
            "each_copy",
            "Copies and sets, each",
            "memops",
            "no copies or sets in this profile",
            "kind bytes duration start stream op layer step reason",
        ),
    )


#: The tables of a difference that the pages show.
_DIFFERENCES: Final = (
    "run",
    "part",
    "op_sum",
    "cause",
    "op",
    "kernel",
    "rank",
    "op_total",
    "kernel_total",
)


def difference_of(asked: Asked) -> Difference:
    """Return the difference from the other profile, with the same selection in both. Raises Unanswered if no
    other profile was given."""
    other = asked.other
    key = ("difference", asked.selection)
    difference: Difference = asked.viewed.tables.get(
        key, lambda: differs(asked.profile, other), lambda _: 1 << 20
    )
    return difference


def _differing(by: str) -> Kind:
    call = "diff(other)" if by == "part" else f'diff(other, "{by}")'
    frame = next(frame for frame in registry.question("diff").frames if frame.call == call)
    return Kind(
        f"diff_{by}",
        difference.TITLES[by].format(unit="step", one="a step"),
        frame,
        "nothing that the profiles tell" if by == "run" else "nothing changed",
        tuple(difference.SHOWN[by]),
        lambda asked: difference.frame(difference_of(asked), by),
        "a b change" if by in ("part", "cause") else "",
    )


def _of_report(report: Report) -> Kind:
    return Kind(
        report.name,
        report.heading,
        report.holds,
        report.no_rows,
        _known(report.keys, report.holds),
        _of_profile(report.frame),
        ADDITIVE if report.sums is None else report.sums,
        tuple(sorted((name, str(value)) for name, value in report.asked.items())),
    )


@cache
def _others() -> Mapping[str, Kind]:
    """Return the tables that are not reports, by their names."""
    others = [*_all_rows(), *map(_differing, _DIFFERENCES)]
    return MappingProxyType({kind.name: kind for kind in others})


@cache
def kinds() -> Mapping[str, Kind]:
    """Return every table by its name; this loads every question."""
    reports = {name: _of_report(report) for name, report in registry.reports().items()}
    return MappingProxyType({**reports, **_others()})


def _known(shown: Iterable[str], holds: Frame) -> tuple[str, ...]:
    """Return the columns to show that are in the frame: the terminal adds some of its own."""
    names = {column.name for column in holds.columns}
    return tuple(name for name in shown if name in names)


def kind(name: str) -> Kind:
    """Return the table of this name, which may have parameters (``short_kernels:below=5us``).

    Raises BadParameter with the nearest name, and for a parameter that the report's question refuses.
    """
    if name in _others():
        return _others()[name]
    try:
        table, given = parts(name)
        if table in registry.reports():
            report = registry.reports()[table]
            return _of_report(report.asking(given) if given else report)
    except WrongParameter as error:
        raise BadParameter(str(error)) from error
    raise BadParameter(suggest.unknown("table", name[:80], [*registry.reports(), *_others()]))
