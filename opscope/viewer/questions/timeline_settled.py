"""The question is answered once the kernels on the devices' lanes have the categories of their ops. Earlier
pictures may say ``provisional``; later ones do not."""

from __future__ import annotations

from typing import Any

from opscope.viewer.question import Asked, Question
from opscope.viewer.timeline import asked as given


def _answer(asked: Asked) -> dict[str, Any]:
    given.timeline(asked).settle()
    return {"settled": True}


QUESTION = Question(name="timeline_settled", answer=_answer)
