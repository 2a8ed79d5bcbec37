"""The detectors' answers on a profile, as the ranked list: each set of detectors is asked once, for all
questions about advice."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import polars as pl

from opscope.core.advice import ask
from opscope.core.advice.causes import causes
from opscope.core.advice.finding import Edit
from opscope.core.advice.ranked import is_open, may_lead, ranked, with_costs
from opscope.core.analysis.answers import Answers
from opscope.core.analysis.critical.edits import edited
from opscope.core.analysis.ops.ops import op_index
from opscope.core.attribution.found import NOTES
from opscope.core.once import lock_of

if TYPE_CHECKING:
    from opscope.core.analysis.critical.graph import Graph

#: The key of the part of the ranked list that the diagnosis shows.
_LEADING: Final = ("", "leading")


def said_before(profile: Answers) -> dict[tuple[str, ...] | None, tuple[ask.Said, ...]]:
    """The detectors' answers so far, by the names of the detectors that were asked."""
    return {}


def answers_by_detector(profile: Answers) -> dict[str, tuple[ask.Said, ...]]:
    """The answers of the detectors that were asked without thresholds, by the detector's name."""
    return {}


def said_by(profile: Answers, detectors: Sequence[str] | None) -> tuple[ask.Said, ...]:
    """Return these detectors' answers for the profile; None: the ranked list, of all detectors and causes.
    Raises ``ask.UnknownDetector``."""
    names = None if detectors is None else tuple(detectors)
    with lock_of(profile, "what the detectors said"):
        said = profile.of(said_before)
        if names not in said:
            said[names] = _said(profile, names)
        return said[names]


def verdict(profile: Answers) -> tuple[ask.Said, ...]:
    """Return the part of the ranked list that the diagnosis may show; the other detectors need not be asked
    for it."""
    with lock_of(profile, "what the detectors said"):
        said = profile.of(said_before)
        if None in said:
            return said[None]
        if _LEADING not in said:
            said[_LEADING] = _said(profile, _LEADING)
        return said[_LEADING]


def _said(profile: Answers, names: tuple[str, ...] | None) -> tuple[ask.Said, ...]:
    fresh = not profile._made - {NOTES}
    if "kernels" in profile.trace.tables:  # a merged profile has no such table
        # read before kernels(), which then shares its columns: for a million kernels they are 0.11 GB
        profile.trace["kernels"]
    ask_for = partial(
        ask.said,
        profile,
        partial(_replay, profile, fresh),
        prepare=partial(_timeline, profile),
    )
    if names is None:
        return ranked(ask_for(before=profile.of(answers_by_detector)), profile.of(causes))
    bounds = profile.of(causes)
    if names is _LEADING:
        chosen = [name for name in ask.detectors() if may_lead(name, bounds)]
        replays = partial(is_open, causes=bounds)
        before = profile.of(answers_by_detector)
        return ranked(ask_for(names=chosen, replays=replays, before=before), bounds)
    return tuple(with_costs(entry, bounds) for entry in ask_for(names=names))


def _replay(profile: Answers, fresh: bool, edits: Sequence[Edit]) -> pl.DataFrame | None:
    """Return the times with the edits. ``fresh``: first release the frames that can be read again."""
    if fresh:
        profile._give_back()
    return simulate(profile, edits)


def _timeline(profile: Answers) -> Graph | None:
    from opscope.core.analysis.critical.graph import replay_graph  # lazy: few need it

    return profile.of(replay_graph)


def simulate(profile: Answers, edits: Sequence[Edit]) -> pl.DataFrame | None:
    """Return the times of the timeline with the edits; None where the trace has no timeline."""
    timeline = _timeline(profile)
    return None if timeline is None else edited(profile.of(op_index), timeline, edits)
