"""Make the frames of reports for files and JSON; ``core/question/registry.py`` finds the reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from opscope.core.not_merged import NotMerged
from opscope.core.question.record import Report
from opscope.core.question.registry import named

from .several import made

if TYPE_CHECKING:
    import polars as pl

    from opscope.profile import Profile


def frames(
    profile: Profile, names: Iterable[str] | Mapping[str, Report], top: int | None = None
) -> dict[str, pl.DataFrame]:
    """Return the first ``top`` rows (None: all) of each report's frame, in their order.

    If reports of the critical path are among them, its assumptions are added to the notes. A report that a
    profile made from partials lacks is left out.
    """
    chosen = named(names)
    of_path = profile.merged_of is None and any(name.startswith("critical_") for name in chosen)

    def frame(name: str) -> pl.DataFrame | None:
        try:
            if name == "notes":
                return profile.notes(critical_path=of_path)
            return chosen[name].frame(profile)
        except NotMerged:
            return None

    answers = made(chosen, frame)
    return {
        name: answer if top is None else answer.head(top)
        for name, answer in answers.items()
        if answer is not None
    }


def lacking(names: Mapping[str, Report]) -> str:
    """Return in a line which reports a merged job lacks, and why."""
    from opscope.core.question.record import why_not_merged

    by: dict[str, list[str]] = {}
    for name, report in names.items():
        by.setdefault(why_not_merged(report) or "it has no single events", []).append(name)
    reasons = "; ".join(f"{', '.join(some)} ({why})" for why, some in by.items())
    return f"made from partials, which lack {reasons}: the rank's own file has them"
