"""Read a command line in DLProf's grammar: ``[switches] [--] COMMAND``.

``--name=value``, ``--name value`` and single letters (``-y 10``, ``-y=10``, ``-y10``). A switch of true or
false may stand alone. A list is one word with commas, or several words up to ``--`` or the next switch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from .switches import BY_NAME, Switch

END: Final = "--"
_FLAGS: Final = {"true": True, "false": False}
Value = str | bool | float | int | tuple[str, ...]


class Usage(ValueError):
    """The command line is wrong; the message says where, and what is allowed."""


@dataclass(slots=True)
class Given:
    """The given values, by the switches' names and typed by their kind, and the command."""

    values: dict[str, Value] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)


def parse(words: Sequence[str]) -> Given:
    """Return the switches and the command. The last of several values counts. Raises Usage."""
    given, rest = Given(), list(words)
    while rest:
        word = rest.pop(0)
        if word == END:
            break
        if not word.startswith("-") or word == "-":
            rest.insert(0, word)
            break
        switch, text = _switch(word)
        if switch.kind == "now":
            if text is not None:
                raise Usage(f"{word}: the switch has no value")
            given.values[switch.name] = True
            continue
        given.values[switch.name] = _value(word.partition("=")[0], switch, text, rest)
    given.command = rest
    _check_command(rest)
    return given


def _switch(word: str) -> tuple[Switch, str | None]:
    """Return the switch that a word names, and the value inside the word."""
    name, equals, text = word.partition("=")
    switch = BY_NAME.get(name)
    if switch is not None:
        return switch, text if equals else None
    if not word.startswith("--"):
        switch = BY_NAME.get(word[:2])
        # a letter directly followed by its value, as in -y10; -fast is not such a word
        if switch is not None and switch.kind in ("seconds", "count") and word[2:3].isdigit():
            return switch, word[2:]
    raise Usage(f"no switch {name}{_close(name)}")


def _close(name: str) -> str:
    """Return ``; did you mean …?`` if a switch has a similar name."""
    bare = f"--{name.lstrip('-').lower().replace('-', '_')}"
    close = get_close_matches(
        bare, [candidate for candidate in BY_NAME if candidate.startswith("--")], n=1
    )
    meant = f"; did you mean {close[0]}?" if close else ""
    return f"{meant} (opscope dlprof --help lists all)"


def _value(name: str, switch: Switch, text: str | None, rest: list[str]) -> Value:
    """Return the value of a switch, taken from ``text`` or else from the words that follow."""
    if switch.kind == "flag":
        if text is None:
            if not rest or rest[0].lower() not in _FLAGS:
                return True
            text = rest.pop(0)
        if text.lower() not in _FLAGS:
            raise Usage(f"{name}={text}: choose true or false")
        return _FLAGS[text.lower()]
    if text is None:
        if not rest or rest[0] == END or (switch.kind != "words" and rest[0] in BY_NAME):
            raise Usage(f"{name}: the value is missing")
        if switch.kind == "words":
            return _until_end(rest)
        text = rest.pop(0)
    if switch.kind == "names":
        return _names(name, switch, text, rest)
    if switch.kind == "words":
        return (text,)
    if switch.kind in ("seconds", "count"):
        return _number(name, switch, text)
    return text


def _until_end(rest: list[str]) -> tuple[str, ...]:
    """Take options of nsys: one quoted word; or, if it is a single option, all words up to ``--``."""
    first = rest[0]
    if END not in rest or " " in first.strip() or not first.startswith("-"):
        return (rest.pop(0),)
    at = rest.index(END)
    taken = tuple(rest[:at])
    del rest[:at]  # the ``--`` itself ends the switches
    return taken


def _names(name: str, switch: Switch, text: str, rest: list[str]) -> tuple[str, ...]:
    """Return the values of a list, including its further words."""
    names_given = _split(text)
    more = _further(switch, rest)
    names_given += [name for word in more for name in _split(word)]
    del rest[: len(more)]
    if not names_given:
        raise Usage(f"{name}: the list is empty")
    for one in names_given:
        if switch.values and one not in switch.values:
            close = get_close_matches(one.lower(), switch.values, n=1)
            meant = f"; did you mean {close[0]}?" if close else ""
            raise Usage(f"{name}={one}: choose from {', '.join(switch.values)}{meant}")
    if rest and rest[0] in switch.values:
        raise Usage(
            f"{name}: {rest[0]} reads as the command; a list is one word ({text},{rest[0]}), or several "
            "words ended by --"
        )
    return tuple(dict.fromkeys(names_given))


def _further(switch: Switch, rest: list[str]) -> list[str]:
    """Return the further words of a list after its first: all up to ``--`` or the next switch."""
    more: list[str] = []
    for word in rest:
        if word == END:
            return more
        if word in BY_NAME or word.partition("=")[0] in BY_NAME:
            # if a switch followed, a word of a command (python -m) would be taken for a domain
            return more if switch.values else []
        if word.startswith("-") or (switch.values and not set(_split(word)) <= set(switch.values)):
            return []
        more.append(word)
    return []


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _number(name: str, switch: Switch, text: str) -> float | int:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0 or (switch.kind == "count" and number % 1):
        meaning = "seconds" if switch.kind == "seconds" else "the number of an iteration"
        raise Usage(f"{name}={text}: give {meaning}, 0 or more")
    return int(number) if switch.kind == "count" else number


def _check_command(command: Sequence[str]) -> None:
    """Raise Usage if the command is a switch without its dashes, as in ``dlprof reports=detail``."""
    name, equals, _ = command[0].partition("=") if command else ("", "", "")
    if equals and f"--{name}" in BY_NAME:
        raise Usage(f"{command[0]}: no command; did you mean --{command[0]}?")
