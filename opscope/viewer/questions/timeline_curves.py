"""The curves of a window: ``of`` (``busy``, ``use``, ``memory``, ``queue``, ``samples``), ``start``, ``end``
(ns), ``columns``; typed arrays, described in ``viewer/timeline/curves.py``."""

from __future__ import annotations

from opscope.viewer.question import Asked, BadParameter, Question
from opscope.viewer.timeline import asked as given
from opscope.viewer.timeline.curves import KINDS, curves


def _answer(asked: Asked) -> bytes:
    of = asked.text("of", "busy", most=20)
    if of not in KINDS:
        raise BadParameter(f"the parameter of is {of!r}; it must be one of {', '.join(KINDS)}")
    window = given.window(asked)
    return curves(given.timeline(asked), of, *window, given.columns(asked))


QUESTION = Question(name="timeline_curves", answer=_answer)
