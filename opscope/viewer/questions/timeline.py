"""The picture of a window of some lanes, as typed arrays: ``viewer/timeline/window.py`` describes them.

Parameters: ``lanes`` (ids, ``d0,h3``), ``start``, ``end`` (ns), ``columns``.
"""

from __future__ import annotations

from opscope.viewer.question import Asked, Question
from opscope.viewer.timeline import asked as given
from opscope.viewer.timeline.window import picture


def _answer(asked: Asked) -> bytes:
    return picture(given.lanes(asked), *given.window(asked), given.columns(asked))


QUESTION = Question(name="timeline", answer=_answer)
