"""The report of what torch.compile made: regions, their kernels, the fused ops, graphs and graph breaks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from opscope.core.question import units
from opscope.frames import FRAMES
from opscope.reports.report import Report, View
from opscope.reports.tables import listed

if TYPE_CHECKING:
    from opscope.core.question.layout import Table
    from opscope.profile import Profile

#: The beginning of the adapter's notes about what the compiler counted.
_COUNTED: Final = "torch.compile: "


def regions(report: Report, profile: Profile, view: View) -> Table:
    """Return the compiled regions, and below them what the compiler counted."""
    table = listed(report, report.frame(profile), view)
    counted = [
        f"{units.text(row['what']).removeprefix(_COUNTED)}: {units.count(row['how_many'])}"
        for row in profile.notes().to_dicts()
        if units.text(row["what"]).startswith(_COUNTED)
    ]
    return replace(table, footnotes=[*counted, *table.footnotes])


REPORT = Report(
    name="compiled",
    order=170,
    title="Compiled regions",
    holds=FRAMES["compiled()"],
    frame=lambda profile: profile.compiled(),
    empty="no compiled region in this profile: torch.compile was not used, or nothing it made ran",
    shown=["region", "direction", "share", "time", "calls", "name", "fused", "source"],
    table=regions,
)
