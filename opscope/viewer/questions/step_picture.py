"""``step_picture``: one step drawn, with the times of its phases and of its devices' idleness. The answer is
``StepPicture`` of ``web/src/pages/step_picture.tsx``. It takes ``steps``, ``device`` and ``rank``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opscope.viewer.question import Asked, Question
from opscope.viewer.step_picture import step_picture

if TYPE_CHECKING:
    from opscope.viewer.viewed import Viewed


def answer(asked: Asked) -> dict[str, Any]:
    """Return the picture of the step nearest to the median in the selection."""
    key = ("step_picture", asked.selection)
    picture: dict[str, Any] = asked.viewed.tables.get(key, lambda: step_picture(asked.profile))
    return picture


def _store(viewed: Viewed) -> list[dict[str, str]]:
    return [{}]


QUESTION = Question(name="step_picture", answer=answer, stored=_store)
