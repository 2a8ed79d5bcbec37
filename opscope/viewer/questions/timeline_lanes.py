"""The lanes of the timeline, by ``part``: ``device`` or ``host``. ``viewer/timeline/lanes_said.py``
describes the answer. In it, ``kept`` is true if the lanes come from pictures that were stored with the
profile. With ``made=1`` the lanes are made first, so that a picture of any window takes milliseconds."""

from __future__ import annotations

from typing import Any

from opscope.viewer.question import Asked, Question
from opscope.viewer.timeline import asked as given
from opscope.viewer.timeline.index import DEVICE
from opscope.viewer.timeline.lanes_said import said


def _answer(asked: Asked) -> dict[str, Any]:
    timeline, part = given.timeline(asked), asked.text("part", DEVICE, most=20)
    is_ready = asked.text("made", "", most=1) == "1" or DEVICE in vars(timeline)
    if part == DEVICE and timeline.first is not None and not is_ready:
        return {**timeline.first.lanes, "kept": True}
    return said(timeline, part)


QUESTION = Question(name="timeline_lanes", answer=_answer)
