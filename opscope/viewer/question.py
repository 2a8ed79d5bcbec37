"""The record of a question that a page asks, and its parameters, checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from opscope.profile import Profile

    from .viewed import Viewed


_STEPS: Final = re.compile(r"([0-9]{1,15})?(-)?([0-9]{1,15})?")
#: A few numbers; -1 is the device of work on no GPU.
_NUMBERS: Final = re.compile(r"-?[0-9]{1,9}(?:,-?[0-9]{1,9}){0,63}")


class BadParameter(ValueError):
    """A parameter is missing, malformed or out of bounds; the message names it. The server says 400."""


class Unanswered(LookupError):
    """The requested data does not exist; the message says which data, and why. The server says 404."""


def whole(text: str) -> str:
    """Return ``text`` with bytes of a file's name that are not UTF-8 written as escapes."""
    return text.encode(errors="backslashreplace").decode()


def _give_up(part: Profile) -> None:
    part._give_up()


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its parameters: the profiles in view, and the selected part."""

    viewed: Viewed
    given: Mapping[str, str]

    @property
    def profile(self) -> Profile:
        """The profile, or the part of it that ``steps`` (``3-8``), ``device`` and ``rank`` select.

        ``steps`` may be open on one side (``3-``, ``-8``); ``device`` and ``rank`` may name several
        (``0,1``). Raises BadParameter if a value is malformed or nothing is selected.
        """
        return self._selected(self.viewed.profile, "profile")

    @property
    def other(self) -> Profile:
        """The profile to compare with, with the same selection. Raises Unanswered if there is none."""
        other = self.viewed.other
        if other is None:
            raise Unanswered(
                "there is no second run to compare with: opscope view FILE --compare OTHER"
            )
        return self._selected(other, "other")

    @property
    def selection(self) -> tuple[object, ...]:
        """The selected steps, devices and ranks; equal for parameters that select the same."""
        return self._steps(), self._numbers("device"), self._numbers("rank")

    def _selected(self, profile: Profile, which: str) -> Profile:
        steps, device, rank = self.selection
        if steps is None and not device and not rank:
            return profile
        where: Any = {"steps": steps, "device": device or None, "rank": rank or None}

        def select() -> Profile:
            try:
                return profile.select(**where)
            except ValueError as error:
                raise BadParameter(str(error)) from None

        key = (which, steps, device, rank)
        return self.viewed.selections.get(key, select, dropped=_give_up)

    def _steps(self) -> tuple[int | None, int | None] | None:
        text = self.given.get("steps")
        if not text:
            return None
        match = _STEPS.fullmatch(text)
        if match is None:
            raise BadParameter(f"steps is {text[:40]!r}; it must be like 3-8, 3- or 3")
        first, dash, last = match.groups()
        if not first and not last:
            raise BadParameter("steps names no step; it must be like 3-8, 3- or 3")
        low = int(first) if first else None
        high = (int(last) if last else None) if dash else low
        if low is not None and high is not None and low > high:
            raise BadParameter(f"steps is {text}: the first is after the last")
        return low, high

    def _numbers(self, name: str) -> tuple[int, ...]:
        text = self.given.get(name)
        if not text:
            return ()
        if _NUMBERS.fullmatch(text) is None:
            raise BadParameter(f"{name} is {text[:40]!r}; it must be a number, or some: 0,1")
        return tuple(sorted(set(map(int, text.split(",")))))

    def text(self, name: str, default: str | None = None, most: int = 1_000) -> str:
        """Return a text of at most ``most`` characters. Raises BadParameter."""
        value = self.given.get(name, default)
        if value is None:
            raise BadParameter(f"{name} is missing")
        if len(value) > most:
            raise BadParameter(f"{name} has {len(value):,} characters; at most {most:,} are taken")
        return value

    def number(self, name: str, default: int | None = None, *, least: int, most: int) -> int:
        """Return a whole number from ``least`` to ``most``. Raises BadParameter."""
        text = self.given.get(name)
        if text is None:
            if default is None:
                raise BadParameter(f"{name} is missing")
            return default
        if len(text) > 20:
            raise BadParameter(f"{name} is no number")
        if re.fullmatch(r"-?[0-9]+", text) is None:
            raise BadParameter(f"{name} is no number: {text!r}")
        value = int(text)
        if not least <= value <= most:
            raise BadParameter(f"{name} is {value}; it must be from {least} to {most}")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question. A module of ``viewer/questions`` defines it as ``QUESTION``.

    ``answer`` returns what JSON can hold, or bytes (typed arrays, little-endian, described in the module).
    ``stored``: the parameter sets whose answers a single file holds, for the profile that is viewed (none:
    the file answers the question by itself, or not at all).
    """

    name: str
    answer: Callable[[Asked], Any]
    stored: Callable[[Viewed], list[dict[str, str]]] = lambda viewed: []
