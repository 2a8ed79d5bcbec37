"""``reports``: every table that a page can show, by its subject.

The answer is ``ReportsAnswer`` of ``web/src/pages/reports.tsx``; it takes no parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opscope.core.question.registry import reports
from opscope.core.question.subjects import subject
from opscope.viewer.question import Asked, Question

if TYPE_CHECKING:
    from opscope.viewer.viewed import Viewed


def answer(asked: Asked) -> dict[str, Any]:
    """Return each report's name, title, subject and the meaning of its rows, in the order of output."""
    return {
        "reports": [
            {
                "name": name,
                "title": report.heading,
                "row": report.holds.row,
                "subject": subject(name),
                "other_names": list(report.aliases),
            }
            for name, report in reports().items()
        ]
    }


def _store(viewed: Viewed) -> list[dict[str, str]]:
    return [{}]


QUESTION = Question(name="reports", answer=answer, stored=_store)
