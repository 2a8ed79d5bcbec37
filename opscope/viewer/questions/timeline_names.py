"""Names of slices by their numbers: ``ids`` (``3,7``), at most 500 at once, each cut to 300 characters."""

from __future__ import annotations

from typing import Any, Final

from opscope.viewer.question import Asked, BadParameter, Question
from opscope.viewer.timeline import asked as given

_MOST: Final = 500
_LONGEST: Final = 300


def _answer(asked: Asked) -> dict[str, Any]:
    names = given.timeline(asked).names
    wanted = asked.text("ids", most=12 * _MOST).split(",")
    if len(wanted) > _MOST:
        raise BadParameter(f"ids are {len(wanted):,}; at most {_MOST} are answered at once")
    found = {}
    for one in wanted:
        if not (one.isascii() and one.isdigit() and len(one) < 10 and int(one) < len(names)):
            raise BadParameter(f"ids has {one[:20]!r}, which is the number of no name")
        found[one] = names[int(one)][:_LONGEST]
    return found


QUESTION = Question(name="timeline_names", answer=_answer)
