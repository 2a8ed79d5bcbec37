"""Answered once the kernels of the lanes of devices have the categories of their ops: pictures that were made
before may say ``provisional``, those that are asked for after it do not."""

from __future__ import annotations

from typing import Any

from opscope.viewer.question import Asked, Question
from opscope.viewer.timeline import asked as given


def _answer(asked: Asked) -> dict[str, Any]:
    given.timeline(asked).settle()
    return {"settled": True}


QUESTION = Question(name="timeline_settled", answer=_answer)
