"""The lanes of the timeline, by ``part``: ``device`` or ``host``. ``viewer/timeline/lanes_said.py`` describes
the answer."""

from __future__ import annotations

from typing import Any

from opscope.viewer.question import Asked, Question
from opscope.viewer.timeline import asked as given
from opscope.viewer.timeline.index import DEVICE
from opscope.viewer.timeline.lanes_said import said


def _answer(asked: Asked) -> dict[str, Any]:
    held, part = given.timeline(asked), asked.text("part", DEVICE, most=20)
    if part == DEVICE and held.first is not None:
        held.begin()
        return held.first.lanes
    return said(held, part)


QUESTION = Question(name="timeline_lanes", answer=_answer)
