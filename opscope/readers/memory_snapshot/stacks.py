"""Number the stacks of a snapshot: a text for each distinct one, in the form of ``host_samples``."""

from __future__ import annotations

import re
from typing import Any, Final

#: The most frames of a stack that are kept, from the innermost on, and the most characters of a frame.
_DEEPEST: Final = 256
_LONGEST: Final = 2048
_NO_STACK: Final = -1
#: The file of a function without a file.
_NO_FILE: Final = "<built-in>"
_PROFILED: Final = re.compile(r"(.+)\(([0-9]{1,9})\): (.+)\Z", re.DOTALL)


class Stacks:
    """The distinct stacks, by number; a stack is a list of frames with file, line and function."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._of_frames: dict[tuple[int, ...], int] = {}
        # frames are compared by identity, so they must live as long as the numbers
        self._kept: list[Any] = []

    def number(self, frames: Any) -> int:
        """The number of a stack, innermost frame first; -1 without frames."""
        if not isinstance(frames, (list, tuple)) or not frames:
            return _NO_STACK
        key = tuple(map(id, frames[:_DEEPEST]))
        number = self._of_frames.get(key)
        if number is None:
            text = "\n".join(filter(None, map(_frame, frames[:_DEEPEST])))
            number = self._numbers.setdefault(text, len(self._texts)) if text else _NO_STACK
            if number == len(self._texts):
                self._texts.append(text)
            self._of_frames[key] = number
            self._kept.append(frames)
        return number

    def text(self, number: int) -> str | None:
        """The text of a stack: a frame a line, file, line and function with tabs between them."""
        return None if number < 0 else self._texts[number]

    @property
    def texts(self) -> list[str]:
        """The texts of all stacks, by number."""
        return self._texts


def _frame(frame: Any) -> str:
    if not isinstance(frame, dict):
        return ""
    file, line, function = (frame.get(key) for key in ("filename", "line", "name"))
    if not isinstance(file, str):
        return ""
    if file == "none" and isinstance(
        function, str
    ):  # a frame of a profile: the function's name contains everything
        match = _PROFILED.match(function[: 2 * _LONGEST])
        file = _NO_FILE
        if match is not None:
            file, line, function = match[1], int(match[2]), match[3]
    words = (file, str(line) if type(line) is int else "0", str(function or ""))
    return "\t".join(" ".join(word[:_LONGEST].split()) for word in words)
