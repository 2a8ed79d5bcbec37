"""What the detectors said of a profile: each set of detectors is asked once, "
"for all questions about advice."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import polars as pl

from opscope.core.advice import ask
from opscope.core.advice.finding import Edit
from opscope.core.analysis.answers import Answers
from opscope.core.analysis.critical.edits import edited
from opscope.core.analysis.critical.graph import replay_graph
from opscope.core.analysis.ops.ops import op_index
from opscope.core.attribution.found import NOTES
from opscope.core.once import lock_of


def said_before(profile: Answers) -> dict[tuple[str, ...] | None, tuple[ask.Said, ...]]:
    """What the detectors said so far, by the names of those that were asked."""
    return {}


def said_by(profile: Answers, detectors: Sequence[str] | None) -> tuple[ask.Said, ...]:
    """Return what these detectors (None: all) say of the profile. Raises ``ask.UnknownDetector``."""
    names = None if detectors is None else tuple(detectors)
    with lock_of(profile, "what the detectors said"):
        said = profile.of(said_before)
        if names not in said:
            fresh = not profile._made - {NOTES}
            if "kernels" in profile.trace.tables:  # of a merged profile there are none
                # read before kernels(), which then shares its columns: of a million they are 0.11 GB
                profile.trace["kernels"]
            replay = partial(_replay, profile, fresh)
            said[names] = ask.said(profile, replay, names, lambda: profile.of(replay_graph))
        return said[names]


def _replay(profile: Answers, fresh: bool, edits: Sequence[Edit]) -> pl.DataFrame | None:
    """Return the times with the edits. ``fresh``: give up first the frames that can be read again."""
    if fresh:
        profile._give_back()
    return simulate(profile, edits)


def simulate(profile: Answers, edits: Sequence[Edit]) -> pl.DataFrame | None:
    """Return the times of the timeline with the edits; None where the trace has no timeline."""
    timeline = profile.of(replay_graph)
    return None if timeline is None else edited(profile.of(op_index), timeline, edits)
