"""The picture of a window of some lanes, as typed arrays: ``viewer/timeline/window.py`` describes them.

Parameters: ``lanes`` (ids, ``d0,h3``), ``start``, ``end`` (ns), ``columns``.
"""

from __future__ import annotations

from opscope.viewer.question import Asked, Question
from opscope.viewer.timeline import asked as given
from opscope.viewer.timeline import first_pictures
from opscope.viewer.timeline.window import picture


def _answer(asked: Asked) -> bytes:
    timeline, (low, high), columns = (
        given.timeline(asked),
        given.window(asked),
        given.columns(asked),
    )
    question = first_pictures.Question(given.lane_names(asked), low, high, columns)
    before = None if timeline.first is None else timeline.first.of(question)
    if before is not None:
        return before
    lanes = given.lanes(asked)
    picture_made = picture(lanes, low, high, columns)
    if not any(lane.provisional for _, lane in lanes):
        first_pictures.keep(timeline, question, picture_made)
    return picture_made


QUESTION = Question(name="timeline", answer=_answer)
