"""The record of a question that a page asks, and its parameters, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opscope.profile import Profile

    from .viewed import Viewed


class BadParameter(ValueError):
    """A parameter is missing, malformed or out of bounds; the message names it. The server says 400."""


class Unanswered(LookupError):
    """What was asked for is not there; the message says what and why. The server says 404."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its parameters: what is viewed, and the part of the profile that was selected."""

    viewed: Viewed
    given: Mapping[str, str]

    @property
    def profile(self) -> Profile:
        """The profile, or the part of it that ``steps`` (``3-8``), ``device`` and ``rank`` select.

        Raises BadParameter if a value is malformed or nothing is selected.
        """
        raise NotImplementedError

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
        try:
            value = int(text)
        except ValueError:
            raise BadParameter(f"{name} is no number: {text!r}") from None
        if not least <= value <= most:
            raise BadParameter(f"{name} is {value}; it must be from {least} to {most}")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question. A module of ``viewer/questions`` defines it as ``QUESTION``.

    ``answer`` returns what JSON can hold, or bytes (typed arrays, little-endian, described in the module).
    ``stored``: the parameter sets whose answers a single file holds, from what is viewed (none: the file
    answers the question by itself, or not at all).
    """

    name: str
    answer: Callable[[Asked], Any]
    stored: Callable[[Viewed], list[dict[str, str]]] = lambda viewed: []
