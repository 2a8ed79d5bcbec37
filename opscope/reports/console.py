"""Reports as tables for a terminal: the chosen reports, or the first screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from opscope.core.not_merged import NotMerged
from opscope.core.question.layout import Column, Table
from opscope.core.question.record import Report, View
from opscope.core.question.registry import first, named, reports
from opscope.reports.tables import table, table_of

from .next_steps import next_steps
from .several import made

if TYPE_CHECKING:
    from opscope.profile import Profile


def tables(
    profile: Profile, names: Iterable[str] | Mapping[str, Report], top: int | None = 20
) -> list[Table]:
    """Return the named reports as tables of at most ``top`` rows (None: all)."""
    view, chosen = View(top), named(names)
    return list(made(chosen, lambda name: table(chosen[name], profile, view)).values())


def first_screen(profile: Profile, top: int | None = 20, enough: bool = True) -> list[Table]:
    """Return the tables of the first screen, the last with the commands to try next.

    ``enough``: end the table of ops once its rows make up 99 % of the time.
    """
    if profile.is_light and not profile.has_ranges:
        return light_screen(profile, top)
    profile.kinds()  # sum the ops before the kernels are loaded: both at once take more memory
    view = View(top, first=True, enough=enough)
    screen = _first(profile)
    if profile.merged_of is not None:
        return _merged_screen(profile, screen, view)
    shown = list(made(screen, lambda name: table(screen[name], profile, view)).values())
    steps = next_steps(profile)
    return [*shown, *([Table("Next", [Column("what", "")], (), steps)] if steps else [])]


def _merged_screen(profile: Profile, first: Mapping[str, Report], view: View) -> list[Table]:
    """Return the tables of a profile that was made from partials, and what it has no table of."""
    shown, lacking = [], []
    for name, report in first.items():
        try:
            shown.append(table_of(report, profile, view))
        except NotMerged:
            lacking.append(name)
    lines = [
        "--reports collectives,stragglers,steps,step_imbalance,communication,clocks: the ranks side by side"
    ]
    if lacking:
        lines.append(
            f"made from partials: no {', '.join(lacking)}, and no single kernels: the rank's file has them"
        )
    return [*shown, Table("Next", [Column("what", "")], (), lines)]


#: The reports of the first screen of a training in light mode.
LIGHT: Final = ("diagnosis", "light", "light_steps", "light_cost")
#: Rows of the slowest steps on it.
_SLOWEST: Final = 5


def light_screen(profile: Profile, top: int | None = 20) -> list[Table]:
    """Return the tables that light mode ends with."""
    shown = [
        table(reports()[name], profile, View(_SLOWEST if name == "light_steps" else top))
        for name in LIGHT
    ]
    return [table for table in shown if table.rows or table.footnotes]


def _first(profile: Profile) -> dict[str, Report]:
    """Return the reports of the first screen; without ops, those that stand in for reports of ops."""
    screen = first()
    row = profile.summary().row(0, named=True)
    if profile.cpu_only or not row["kernel_time"] or row["device_attributed_time"]:
        return screen
    instead = {report.without_ops: report for report in reports().values() if report.without_ops}
    shown = [instead.get(name, report) for name, report in screen.items()]
    return {report.name: report for report in shown}
