"""The next slice whose name contains a text: ``text``, ``from`` (ns), ``back`` (``1``: search backwards),
``after`` (``d0:0:17``: the slice that was found last), ``lanes``, ``exact`` (``1``: the name is the text).
``viewer/timeline/find.py`` describes the answer."""

from __future__ import annotations

from typing import Any

from opscope.viewer.question import Asked, BadParameter, Question
from opscope.viewer.timeline import asked as given
from opscope.viewer.timeline.find import Place, find


def _answer(asked: Asked) -> dict[str, Any]:
    text = asked.text("text")
    if not text:
        raise BadParameter("text is empty")
    place = asked.text("after", "", most=60)
    after = None
    if place:
        parts = place.split(":")
        if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts[1:]):
            raise BadParameter(f"the parameter after is {place!r}; it must be lane:level:index")
        after = Place(parts[0], int(parts[1]), int(parts[2]))
    return find(
        given.timeline(asked),
        given.lanes(asked),
        text,
        asked.number("from", least=-(1 << 62), most=1 << 62),
        after,
        asked.text("back", "", most=1) == "1",
        asked.text("exact", "", most=1) == "1",
    )


QUESTION = Question(name="timeline_find", answer=_answer)
