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
        raise BadParameter(f"ids has {len(wanted):,} numbers; at most {_MOST} are answered at once")
    names_found = {}
    for number in wanted:
        if not (
            number.isascii() and number.isdigit() and len(number) < 10 and int(number) < len(names)
        ):
            raise BadParameter(f"ids has {number[:20]!r}, which is the number of no name")
        names_found[number] = names[int(number)][:_LONGEST]
    return names_found


QUESTION = Question(name="timeline_names", answer=_answer)
