"""Reports as tables for a terminal: the chosen reports, or the first screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from opscope.core.not_merged import NotMerged
from opscope.core.question.layout import PIPED_WIDTH, Column, Table, line_count
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


def first_screen(
    profile: Profile, top: int | None = 20, enough: bool = True, width: int = PIPED_WIDTH
) -> list[Table]:
    """Return the tables of the first screen, the last with the commands to try next.

    ``enough``: keep it within ``LINES`` lines of ``width`` characters (0: no limit). The table of ops takes
    the lines that the others leave, and ends once its rows make up 99 % of the time.
    """
    if profile.is_light and not profile.has_ranges:
        return light_screen(profile, top)
    profile.kinds()  # sum the ops before the kernels are loaded: both in memory at once take more
    view = View(top, first=True, enough=enough)
    screen = _first(profile)
    if profile.merged_of is not None:
        return _merged_screen(profile, screen, view)
    elastic = [name for name in screen if enough and name in _ELASTIC]
    fixed = {name: report for name, report in screen.items() if name not in elastic}
    shown = dict(made(fixed, lambda name: table(fixed[name], profile, view)))
    if "by_kind" in shown and shown["by_kind"].rows:
        shown.pop("summary", None)
    verdict = shown["diagnosis"].sentences if "diagnosis" in shown else ()
    steps = next_steps(profile, idle=not any(_IDLE in line for line in verdict))
    last = [Table("Next", [Column("what", "")], (), steps)] if steps else []
    used = sum(line_count(each, width) + 1 for each in [*filter(_says, shown.values()), *last])
    for name in elastic:
        shown[name] = _fitting(screen[name], profile, top, LINES - used, width)
    return [*(shown[name] for name in screen if name in shown and _says(shown[name])), *last]


def _fitting(report: Report, profile: Profile, top: int | None, room: int, width: int) -> Table:
    """Return the report cut to ``room`` lines, but with at least ``_FEWEST`` rows; at most ``top`` rows."""
    rows = room if top is None else min(room, top)
    for around in (_AROUND, None):
        fitted = table(report, profile, View(max(rows - _AROUND, _FEWEST), first=True, enough=True))
        over = line_count(fitted, width) - room
        if over <= 0 or around is None:
            break
        rows = len(fitted.rows) + _AROUND - over
    return fitted


#: Lines of the first screen; lines of a table of ops besides its rows; and the fewest rows of such a table.
LINES: Final = 45
_AROUND: Final = 4
_FEWEST: Final = 3
#: Words in a verdict's sentence which show that it is about the device's idle time.
_IDLE: Final = "the device was idle"
#: The reports that fill the remaining lines.
_ELASTIC: Final = ("by_op", "kernel")


def _says(table: Table) -> bool:
    return bool(table.rows or table.footnotes or table.sentences)


def _merged_screen(profile: Profile, first: Mapping[str, Report], view: View) -> list[Table]:
    """Return the tables of a profile made from partials, and a table of the reports that it lacks."""
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
LIGHT: Final = ("diagnosis", "wall_time", "light", "light_steps", "light_cost")
#: Number of slowest steps on the first screen.
_SLOWEST: Final = 5


def light_screen(profile: Profile, top: int | None = 20) -> list[Table]:
    """Return the tables that light mode prints at its end."""
    views = {"light_steps": View(_SLOWEST), "wall_time": View(top, first=True)}
    shown = [table(reports()[name], profile, views.get(name, View(top))) for name in LIGHT]
    return [table for table in shown if table.rows or table.footnotes]


def _first(profile: Profile) -> dict[str, Report]:
    """Return the reports of the first screen; if there are no ops, with the replacements for reports of
    ops."""
    screen = first()
    row = profile.summary().row(0, named=True)
    if profile.cpu_only or not row["kernel_time"] or row["device_attributed_time"]:
        return screen
    instead = {report.without_ops: report for report in reports().values() if report.without_ops}
    shown = [instead.get(name, report) for name, report in screen.items()]
    return {report.name: report for report in shown}
