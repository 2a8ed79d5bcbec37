"""The whole timeline for a page without a server: ``viewer/timeline/whole.py`` describes the typed arrays."""

from __future__ import annotations

from opscope.viewer.question import Asked, Question
from opscope.viewer.timeline import asked as given
from opscope.viewer.timeline.whole import whole


def _answer(asked: Asked) -> bytes:
    return whole(given.timeline(asked))


QUESTION = Question(name="timeline_all", answer=_answer, stored=lambda viewed: [{}])
