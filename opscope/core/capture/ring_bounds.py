"""The bounds of a ring that the user names: how much it keeps, and when it is written."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from .slow_steps import SlowSteps

_LAST: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*")
_SECONDS: Final = {
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
}
#: The most that a user may ask a ring to keep: a day, and a million steps.
MOST_SECONDS: Final = 86_400.0
MOST_STEPS: Final = 1_000_000
#: The largest size of a process's ring on disk, in bytes, even if the user asks it to keep more.
MAX_BYTES: Final = 1 << 30
#: A ring of steps keeps this many seconds of a process that has no steps.
SECONDS_WITHOUT_STEPS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Last:
    """The last ``seconds``, or the last ``steps``; the other is None."""

    seconds: float | None = None
    steps: int | None = None

    def __str__(self) -> str:
        if self.steps is not None:
            return f"{self.steps} step{'s' * (self.steps != 1)}"
        return f"{self.seconds:g}s"


def parse_last(text: str | float) -> Last:
    """Return what ``60s``, ``5min``, ``1h``, ``20 steps`` or a number of seconds means.

    Raises ValueError for any other text, and for 0 or more than ``MOST_SECONDS`` or ``MOST_STEPS``.
    """
    wrong = f"not a time or a number of steps: {text!r}; 60s, 5min and 20 steps are"
    match = _LAST.fullmatch(str(text).lower()) if not isinstance(text, bool) else None
    if match is None:
        raise ValueError(wrong)
    number, unit = float(match[1]), match[2]
    if unit in ("step", "steps"):
        if number != int(number) or not 1 <= number <= MOST_STEPS:
            raise ValueError(f"{text!r}: a ring keeps 1 to {MOST_STEPS} steps")
        return Last(steps=int(number))
    if unit not in _SECONDS:
        raise ValueError(wrong)
    seconds = number * _SECONDS[unit]
    if not 0 < seconds <= MOST_SECONDS or not math.isfinite(seconds):
        raise ValueError(f"{text!r}: a ring keeps more than 0 and at most {MOST_SECONDS:g} seconds")
    return Last(seconds=seconds)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The amount that a ring keeps, and which steps are written.

    ``slow``: a step that takes longer than this many medians is written, with the step before it and
    ``after`` steps after it; None: none is. At most ``files`` files, and none within ``gap`` seconds of the
    one before. ``max_bytes``: the ring's largest size on disk.
    """

    last: Last
    slow: float | None = None
    after: int = 2
    files: int = 5
    gap: float = 60.0
    max_bytes: int = MAX_BYTES

    def __post_init__(self) -> None:
        if self.slow is not None:
            SlowSteps(self.slow)  # raises ValueError for a wrong factor

    @property
    def segment_ns(self) -> int:
        """The length of a segment of the ring: an eighth of the kept time, 0.5 to 10 s."""
        seconds = self.last.seconds if self.last.seconds is not None else SECONDS_WITHOUT_STEPS
        return int(min(max(seconds / 8, 0.5), 10.0) * 1e9)

    @property
    def segment_steps(self) -> int | None:
        """The number of steps after which a segment ends if its time is not over; None: only the time
        counts."""
        return None if self.last.steps is None else max(self.last.steps // 4, 1)
