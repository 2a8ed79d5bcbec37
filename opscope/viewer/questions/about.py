"""``about``: the files, steps, devices and ranks of the profile, and the pages that have nothing to show. The
answer is ``About`` of ``web/src/page.ts``; it takes no parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import polars as pl

from opscope.core.analysis.ops.ops import op_index
from opscope.core.analysis.serving.engine_steps import engine_steps
from opscope.core.analysis.steps.step_times import has_steps, steps_of
from opscope.core.analysis.steps.steps import table_of_steps
from opscope.core.question.registry import reports
from opscope.reports import vendor_words
from opscope.version import __version__
from opscope.viewer import fitting
from opscope.viewer.question import Asked, Question, whole
from opscope.viewer.rows import plain

if TYPE_CHECKING:
    from opscope.profile import Profile
    from opscope.viewer.viewed import Viewed

#: The words about a slice for which vendors have their own.
_VENDORS: Final = ("tensor_core", "tc_reason")


def answer(asked: Asked) -> dict[str, Any]:
    """Return the facts that a page's frame needs."""
    facts: dict[str, Any] = asked.viewed.tables.get("about", lambda: _about(asked.viewed))
    return facts


def _about(viewed: Viewed) -> dict[str, Any]:
    profile = viewed.profile
    steps, ranks = _steps(profile), _ranks(profile)
    of = vendor_words.vendor(profile)
    empty = _empty(viewed, steps, ranks)
    called = {name: fitting.heading(name, profile.cpu_only, of) for name in _VENDORS}
    return {
        "files": [whole(name) for name in viewed.names],
        "other": [whole(name) for name in viewed.other_names],
        "version": __version__,
        "steps": steps,
        "devices": _devices(profile),
        "ranks": ranks,
        "cpu_only": profile.cpu_only,
        "span": _span(profile),
        "selected": profile.selected,
        "merged": profile.merged_of,
        "editor": viewed.editor is not None,
        "of_runs": viewed.of_runs,
        "called": {name: words for name, words in called.items() if words},
        "empty": {page: vendor_words.said(text, of) for page, text in empty.items()},
    }


def _steps(profile: Profile) -> dict[str, Any] | None:
    """Return the steps that can be selected; if ``marked`` is false, they are detected iterations."""
    marked = profile.merged_of is not None or profile.of(has_steps)
    if profile.merged_of is not None:
        numbers = profile.of(table_of_steps)["step"].drop_nulls().unique()
    elif marked:
        numbers = steps_of(profile.of(op_index))["step"].drop_nulls().unique()
    else:  # without marked steps, a selection of steps selects iterations
        iterations = profile.iterations()
        numbers = iterations["iteration"].drop_nulls().unique()
    if numbers.is_empty():
        return None
    return {
        "first": int(numbers.min()),  # type: ignore[arg-type]
        "last": int(numbers.max()),  # type: ignore[arg-type]
        "count": len(numbers),
        "marked": marked,
    }


def _devices(profile: Profile) -> list[dict[str, Any]]:
    trace = profile.trace
    if profile.merged_of is not None:  # no part of a merged job can be selected, not even devices
        return []
    seen = [
        profile._own_columns(name, ["device"])[0]["device"].drop_nulls().unique()
        for name in ("kernels", "memops")
        if trace.has(name)
    ]
    numbers = sorted(set().union(*(column.to_list() for column in seen))) if seen else []
    named: dict[int, str] = {}
    if trace.has("devices"):
        known = (
            trace["devices"]
            .select("device", pl.col("name").cast(pl.String))
            .drop_nulls()
            .unique(maintain_order=True)
        )
        for number, name in known.rows():
            named.setdefault(number, name)
    return [{"device": number, "name": named.get(number, f"GPU {number}")} for number in numbers]


def _ranks(profile: Profile) -> list[int]:
    if not profile.trace.has("processes"):
        return []
    return sorted(profile.trace["processes"]["rank"].drop_nulls().unique().to_list())


def _span(profile: Profile) -> dict[str, Any] | None:
    bounds = []
    if profile.merged_of is not None:
        bounds.append((profile.spans["start"].min(), profile.spans["end"].max()))
    for name in () if bounds else ("ranges", "calls", "kernels", "memops", "syncs"):
        if profile.trace.has(name):
            table = profile._own_columns(name, ["start", "end"])[0]
            bounds.append((table["start"].min(), table["end"].max()))
    starts = [low for low, _ in bounds if low is not None]
    ends = [high for _, high in bounds if high is not None]
    if not starts or not ends:
        return None
    return {"start": plain(min(starts)), "end": plain(max(ends))}


def _empty(viewed: Viewed, steps: object, ranks: list[int]) -> dict[str, str]:
    """Return why pages are empty, by page, in the words of the report that the page shows."""
    profile, trace, texts = viewed.profile, viewed.profile.trace, dict[str, str]()
    if profile.merged_of is not None:
        return _empty_of_merged(viewed, steps)
    counts = {
        name: profile._own_columns(name, [])[1] if trace.has(name) else 0
        for name in ("ranges", "kernels", "memops", "allocations", "calls")
    }
    if not any(counts.values()):
        nothing = "the profile is empty: no op, kernel or copy was recorded"
        texts |= dict.fromkeys(("overview", "operators", "layers", "timeline", "roofline"), nothing)
    if not counts["kernels"] and not counts["memops"]:
        texts["kernels"] = reports()["kernel"].empty
    if steps is None:
        texts["steps"] = reports()["steps"].empty
    if not counts["allocations"]:
        texts["memory"] = reports()["memory"].empty
    if len(ranks) < 2 and profile.collectives().is_empty():
        texts["distributed"] = reports()["collectives"].empty
    if profile.of(engine_steps).is_empty():
        texts["serving"] = reports()["serving_phases"].empty
    if viewed.other is None:
        texts["compare"] = "no second run was given: opscope view FILE --compare OTHER"
    return texts


def _empty_of_merged(viewed: Viewed, steps: object) -> dict[str, str]:
    """Return why pages of a merged job are empty: those drawn from events."""
    texts = dict.fromkeys(_OF_EVENTS, NO_EVENTS)
    if viewed.profile.cpu_only:
        texts["kernels"] = reports()["kernel"].empty
    if steps is None:
        texts["steps"] = reports()["steps"].empty
    if viewed.profile.collectives().is_empty():
        texts["distributed"] = reports()["collectives"].empty
    if viewed.other is None:
        texts["compare"] = "no second run was given: opscope view FILE --compare OTHER"
    return texts


#: The pages that are drawn from single events, and what they show for a merged job.
_OF_EVENTS: Final = ("layers", "timeline", "roofline", "memory", "serving", "source")
NO_EVENTS: Final = (
    "events are not in a merged job, which holds sums and steps: opscope view of the rank's own file shows"
    " this page"
)
QUESTION = Question(name="about", answer=answer, stored=lambda viewed: [{}])
