"""The report of the time by kind of work: matrix products, attention, copies …"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from opscope.core.question import units
from opscope.core.question.layout import Column, Table
from opscope.core.question.names import kernel
from opscope.frames import FRAMES
from opscope.reports.grouped import WORTH, and_others
from opscope.reports.report import Report, View

if TYPE_CHECKING:
    import polars as pl

    from opscope.profile import Profile

#: Length, in characters, of the bar of a share of 1.
_BAR: Final = 24
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"


def bar(share: object) -> str:
    """Return a share (a fraction of 1) as a bar of at most 24 characters, to an eighth of a character."""
    if not isinstance(share, float) or share <= 0:
        return ""
    whole, rest = divmod(round(min(share, 1.0) * _BAR * 8), 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")) or "▏"


def kinds(report: Report, profile: Profile, view: View) -> Table:
    """Return the kinds of work by their share of the time, each with the op that took most of its time."""
    frame = report.frame(profile)
    of = "CPU time" if profile.cpu_only else "device time"
    whole = int(frame["device_time"].sum())
    title = f"{report.title}: {units.time(whole)} of {of}, by kind of work"
    keys = [
        Column("share", "share", units.share),
        Column("bar", ""),
        Column("device_time", "time", units.time),
        Column("kind", "kind"),
        Column("calls", "calls" if profile.cpu_only else "kernels", units.count, rank=4),
        Column("op", "mostly", flexible=True, rank=3, least=24, parts="words"),
    ]
    if frame.is_empty():
        return Table(report.title, keys, (), (report.empty,))
    rows = [
        row | {"bar": bar(row["share"]), "op": and_others(kernel(row["op"]), row["ops"])}
        for row in (frame if view.first or view.top is None else frame.head(view.top)).to_dicts()
    ]
    return Table(title, keys, rows, _means(frame, profile.cpu_only))


def _means(frame: pl.DataFrame, on_cpu: bool) -> list[str]:
    """Return a line for each kind in ``frame`` whose name alone does not explain it.

    ``on_cpu``: times are those of ops, and a session's own time is what passes between its nodes.
    """
    # loads Polars
    from opscope.core.analysis.summary.summary import COMPILING
    from opscope.core.perf.kinds import COPIES, NO_OP, OTHER, UNCLEAR_FAMILIES, UNKNOWN
    from opscope.core.perf.kinds import kinds as all_kinds
    from opscope.core.perf.registry import lookup

    mostly = {row["kind"]: row["op"] for row in frame.to_dicts() if row["share"] >= WORTH}
    means = {name: all_kinds()[name].means for name in (COPIES, OTHER, UNKNOWN, NO_OP)}
    if mostly.get(NO_OP) == COMPILING:
        means[NO_OP] = means[NO_OP].replace("Python,", "the compiling of programs, Python,")
    entry = lookup(str(mostly.get(UNKNOWN))) if on_cpu else None
    if entry is not None and entry.family in UNCLEAR_FAMILIES:
        means[UNKNOWN] += f"; {mostly[UNKNOWN]}: what passes there between the ops that it runs"
    return [f"{name}: {text}" for name, text in means.items() if name in mostly]


REPORT = Report(
    name="by_kind",
    order=40,
    title="Where the time went",
    holds=FRAMES['totals_by("kind")'],
    frame=lambda profile: profile.totals_by("kind"),
    empty="not known: no kernels and no ops were recorded",
    table=kinds,
    first=True,
    by="kind",
    lean=True,
)
