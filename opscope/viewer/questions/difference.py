"""The question of the difference of two runs: its headline, the step in both, and notes."""

from __future__ import annotations

from typing import Any

from opscope.reports import difference
from opscope.viewer.question import Asked, Question
from opscope.viewer.rows import plain
from opscope.viewer.tables import difference_of
from opscope.viewer.viewed import Viewed


def answer(asked: Asked) -> dict[str, Any]:
    """Return the ``headline``, the row ``step`` (times in ns) and ``notes``, as ``opscope diff`` says them.

    Raises Unanswered if no other run was given.
    """
    found = difference_of(asked)
    return {
        "headline": difference.headline(found),
        "step": {name: plain(value) for name, value in found.step.row(0, named=True).items()},
        "notes": difference.notes(found),
    }


def stored(viewed: Viewed) -> list[dict[str, str]]:
    """Return the parameters of the answers that a single file of two runs holds."""
    return [] if viewed.other is None else [{}]


QUESTION = Question(name="difference", answer=answer, stored=stored)
