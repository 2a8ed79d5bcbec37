"""The report of ranks that are unlike the others."""

from __future__ import annotations

from opscope.core.question import units
from opscope.core.question.layout import Column
from opscope.frames import FRAMES
from opscope.reports.report import Report


def _measured(value: object) -> str:
    """Return four digits of a ratio; of a clock rate or a power its whole number where it has more."""
    if not isinstance(value, float):
        return units.UNKNOWN
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


REPORT = Report(
    name="rank_outliers",
    order=345,
    title="Ranks unlike the others",
    holds=FRAMES["rank_outliers()"],
    frame=lambda profile: profile.rank_outliers(),
    forms=[
        Column(name, name.replace("_", " "), _measured) for name in ("value", "typical", "z_score")
    ],
    empty="no kernel that several ranks ran, and no clock, temperature or power that was sampled",
)
