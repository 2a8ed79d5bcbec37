"""Sums of what runs in a span: ``start``, ``end`` (ns), ``lanes``; over all slices, by category and by
name."""

from __future__ import annotations

from typing import Any

from opscope.viewer.question import Asked, Question
from opscope.viewer.timeline import asked as given
from opscope.viewer.timeline.find import sums


def _answer(asked: Asked) -> dict[str, Any]:
    timeline = given.timeline(asked)
    lanes = given.lanes(asked)
    # time by category waits until the categories are known
    if any(lane.provisional for _, lane in lanes):
        timeline.settle()
        lanes = given.lanes(asked)
    return sums(timeline, lanes, *given.window(asked))


QUESTION = Question(name="timeline_sum", answer=_answer)
