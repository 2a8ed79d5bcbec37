"""What one slice is: ``lane``, ``level``, ``index``; ``brief=1``: its name and times alone.
``viewer/timeline/detail.py`` describes the answer."""

from __future__ import annotations

from typing import Any

from opscope.viewer.question import Asked, Question
from opscope.viewer.timeline import asked as given
from opscope.viewer.timeline.detail import detail


def _answer(asked: Asked) -> dict[str, Any]:
    return detail(
        given.timeline(asked),
        asked.text("lane", most=20),
        asked.number("level", 0, least=0, most=1_000),
        asked.number("index", least=0, most=1 << 40),
        asked.text("brief", "", most=1) == "1",
    )


QUESTION = Question(name="timeline_slice", answer=_answer)
