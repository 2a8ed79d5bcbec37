"""Say of each figure whether both have it alike, and if not, why."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

#: HTA keeps times as floating-point µs, in which sums of ns are off in the last digits: the relative and the
#: absolute difference up to which figures are equal.
SAME = 1e-6
WITHIN = 2e-3


@dataclass(frozen=True)
class Row:
    """A figure of both; ``why`` is given where they differ and the question knows the reason."""

    question: str
    figure: str
    ours: Any
    theirs: Any
    equal: bool
    why: str | None

    @property
    def unexplained(self) -> bool:
        """Whether the figures differ and nobody says why."""
        return not self.equal and self.why is None

    def cells(self) -> tuple[str, ...]:
        """Return the row of the table."""
        result = "equal" if self.equal else f"different: {self.why or 'not explained'}"
        return self.question, self.figure, _shown(self.ours), _shown(self.theirs), result


def compare(name: str, question: Any, ours: Any, theirs: Any) -> Iterator[Row]:
    """Yield each figure that either has; where HTA failed, one row says how."""
    if theirs["error"]:
        figures = len(ours["figures"])
        yield Row(name, "(all)", f"{figures} figures", theirs["error"], False, "HTA fails here")
        return
    mine, other = ours["figures"], theirs["figures"]
    same, within = getattr(question, "SAME", SAME), getattr(question, "WITHIN", WITHIN)
    for figure in dict.fromkeys([*mine, *other]):
        one, two = mine.get(figure), other.get(figure)
        equal = _equal(one, two, same, within)
        yield Row(
            name, figure, one, two, equal, None if equal else _why(question, figure, mine, other)
        )


def _why(question: Any, figure: str, mine: Any, other: Any) -> str | None:
    """Return the reason: of the question's ``WHY``, regular expression → text or function of both's figures."""
    for pattern, reason in getattr(question, "WHY", {}).items():
        if re.search(pattern, figure):
            text = reason(figure, mine, other) if callable(reason) else reason
            if text:
                return str(text)
    return None


def _equal(one: Any, two: Any, same: float, within: float) -> bool:
    if isinstance(one, (int, float)) and isinstance(two, (int, float)):
        return math.isclose(one, two, rel_tol=same, abs_tol=within)
    return bool(one == two)


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return f"{value:,}" if isinstance(value, int) else str(value)
