"""What to change in the program, and what that would save."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import polars as pl

from opscope.core.advice import ask
from opscope.core.advice.combined import combined, evidence
from opscope.core.advice.finding import Answers, Edit
from opscope.core.analysis.critical.edits import edited
from opscope.core.analysis.critical.graph import Graph, for_replays
from opscope.core.attribution.found import NOTES
from opscope.core.once import lock_of, once

from .base import selectable
from .critical import Critical

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Where


class Advice(Critical):
    """What the detectors say, the saving of all their findings together, and the evidence as rows."""

    @selectable
    def advice(
        self, detectors: Sequence[str] | None = None, **where: Unpack[Where]
    ) -> pl.DataFrame:
        """What to change in the program, by what it would save; then what no detector could tell.

        A saving lies between ``saving_least`` and ``saving_most``; ``saving`` is the best estimate, made by a
        replay of the timeline with the change where the detector has none of its own. Savings overlap: they
        must not be added up; ``advice_combined()`` has the saving of all. ``outcome`` is ``nothing found``
        only where the detector saw all that it needs. ``detectors``: ask these alone. Raises ValueError
        for a name that no detector has.
        """
        found = self._said(detectors)
        return self._given(
            _name("advice", detectors), lambda: ask.frame(cast("Answers", self), found)
        )

    @selectable
    def advice_combined(
        self, detectors: Sequence[str] | None = None, **where: Unpack[Where]
    ) -> pl.DataFrame:
        """What all findings save together: one replay of the timeline with all of their changes.

        Where several changes touch the same work, the one that leaves least of it counts. A finding that
        does not say what its change does to the timeline is left out, and named. Without a replay the times
        are null, and ``reason`` says why. ``detectors``: as for ``advice()``.
        """
        found = self._said(detectors)
        wall = cast("Answers", self).summary()["wall_time"][0]
        return self._given(
            _name("advice_combined", detectors), lambda: combined(found, self._simulate, wall)
        )

    @selectable
    def advice_evidence(
        self, detectors: Sequence[str] | None = None, **where: Unpack[Where]
    ) -> pl.DataFrame:
        """The evidence of each finding of ``advice()`` as rows, by the finding's ``number``.

        ``detectors``: as for ``advice()``.
        """
        found = self._said(detectors)
        return self._given(_name("advice_evidence", detectors), lambda: evidence(found))

    def _said(self, detectors: Sequence[str] | None) -> tuple[ask.Said, ...]:
        names = None if detectors is None else tuple(detectors)
        held: dict[tuple[str, ...] | None, tuple[ask.Said, ...]]
        with lock_of(self, "what the detectors said"):
            held = self.__dict__.setdefault("_what_was_said", {})
            if names not in held:
                fresh = not self._frames.keys() - {NOTES}
                if "kernels" in self.trace.tables:  # of a merged profile there are none
                    # read before kernels(), which then shares its columns: of a million they are 0.11 GB
                    self.trace["kernels"]
                held[names] = ask.said(
                    cast("Answers", self),
                    partial(self._replayed, fresh),
                    names,
                    lambda: self._timeline,
                )
            return held[names]

    @once
    def _timeline(self) -> Graph | None:
        """The graph as far as replays need it: without 0.1 GB of a million kernels' ops and calls.

        It is made as soon as a finding needs it, by the thread that asked for the finding, so that two
        threads are at work: in a third one the peak was a fifth higher.
        """
        held: Graph | None = self.__dict__.get("_graph")
        if held is not None:
            return held
        made = self._make_graph()
        return None if made is None else for_replays(made)

    def _replayed(self, fresh: bool, edits: Sequence[Edit]) -> pl.DataFrame | None:
        """Return the times with the edits. ``fresh``: give up first the frames that can be read again."""
        if fresh:
            self._give_back_stored()
        return self._simulate(edits)

    def _simulate(self, edits: Sequence[Edit]) -> pl.DataFrame | None:
        made = self._timeline
        return None if made is None else edited(self._ops, made, edits)


def _name(method: str, detectors: Sequence[str] | None) -> str:
    return method if detectors is None else f"{method}({','.join(detectors)})"
