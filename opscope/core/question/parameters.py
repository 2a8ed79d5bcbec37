"""The parameters of a question: what each accepts, as a Python value or as text, and its bounds."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .suggest import unknown

#: Units of a time in text, in ns.
_TIMES: Final = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_UNITS: Final = (("ns", 1), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000))
_TIME: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*(ns|us|µs|ms|s)?")
_SHARE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) *(%)?")
_COUNT: Final = re.compile(r"[0-9]{1,15}")
#: Characters of a wrong value that an error message repeats at most.
_SHOWN: Final = 80


class WrongParameter(ValueError):
    """A question was asked with a parameter that it does not have, or a value that the parameter refuses."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: its ``meaning``, and ``read``, which returns the value of a text or of a Python value.

    ``accepts`` describes the right values; ``read`` raises ValueError for another, and ``written`` writes a
    value for people. ``several``: a text holds several values, joined by ``+``, as
    ``operators:by=inputs+source``. ``textual``: whether it can be given as text.
    """

    meaning: str
    accepts: str
    read: Callable[[object], Any]
    several: bool = False
    written: Callable[[Any], str] = str
    textual: bool = True


def parts(text: str) -> tuple[str, dict[str, str]]:
    """Return the name and the parameters of ``short_kernels:below=5us:…``. Raises WrongParameter."""
    name, *rest = text.split(":")
    given: dict[str, str] = {}
    for word in rest:
        parameter, equals, value = word.partition("=")
        if not equals:
            raise WrongParameter(f"{name}:{word}: a parameter is NAME=VALUE")
        key = parameter.strip().replace("-", "_")
        if given.setdefault(key, value.strip()) != value.strip():
            raise WrongParameter(f"{name}: {key} is given twice, with different values")
    return name, given


def values_of(
    name: str, parameters: Mapping[str, Parameter], given: Mapping[str, str]
) -> dict[str, Any]:
    """Return values of parameters of ``name`` given as text. Raises WrongParameter for a wrong value."""
    values: dict[str, Any] = {}
    for word, text in given.items():
        if word not in parameters:
            if not parameters:
                raise WrongParameter(f"{name} takes no parameters, so no {word!r}")
            raise WrongParameter(f"{name}: {unknown('parameter', word, parameters)}")
        parameter = parameters[word]
        about = f"{name}: {word}"
        if parameter.several:
            texts = filter(None, text.split("+"))
            values[word] = tuple(value_of(about, parameter, part) for part in texts)
        else:
            values[word] = value_of(about, parameter, text)
    return values


def value_of(name: str, parameter: Parameter, given: object) -> Any:
    """Return the value of ``given``. Raises WrongParameter, with the parameter's name, for a wrong value."""
    try:
        return parameter.read(given)
    except ValueError as error:
        raise WrongParameter(f"{name}: {error}") from error


def duration(meaning: str, *, least: int = 0) -> Parameter:
    """A time in ns: an int, or text with a unit (``5us``, ``1.5ms``); text without one is in ns."""
    accepts = "a time such as 5us or 1.5ms"

    def read(given: object) -> int:
        matched = _TIME.fullmatch(given.strip()) if isinstance(given, str) else None
        if matched is not None:
            ns = round(float(matched[1]) * _TIMES[matched[2] or "ns"])
        elif isinstance(given, int) and not isinstance(given, bool):
            ns = given
        else:
            raise ValueError(f"{accepts}, not {_short(given)}")
        if ns < least:
            raise ValueError(f"must be at least {least} ns, not {_short(given)}")
        return ns

    return Parameter(meaning, accepts, read, written=_time)


def share(meaning: str) -> Parameter:
    """A share: a number from 0 to 1, or text with a percent sign (``5%``)."""
    accepts = "a share such as 5% or 0.05"

    def read(given: object) -> float:
        matched = _SHARE.fullmatch(given.strip()) if isinstance(given, str) else None
        if matched is not None:
            value = float(matched[1]) / (100 if matched[2] else 1)
        elif isinstance(given, (int, float)) and not isinstance(given, bool):
            value = float(given)
        else:
            raise ValueError(f"{accepts}, not {_short(given)}")
        if not 0 <= value <= 1:
            raise ValueError(f"must be from 0 to 1, not {_short(given)}")
        return value

    return Parameter(meaning, accepts, read, written=lambda value: f"{100 * value:g} %")


def count(
    meaning: str, *, least: int = 0, most: int | None = None, optional: bool = False
) -> Parameter:
    """A whole number from ``least`` to ``most``; if ``optional``, also None, which means no limit."""
    bounds = f"at least {least}" if most is None else f"from {least} to {most:,}"

    def read(given: object) -> int | None:
        if optional and given in (None, ""):
            return None
        if isinstance(given, str) and _COUNT.fullmatch(given.strip()):
            given = int(given)
        if not isinstance(given, int) or isinstance(given, bool):
            raise ValueError(f"a whole number, not {_short(given)}")
        if given < least or (most is not None and given > most):
            raise ValueError(f"must be {bounds}, not {given}")
        return given

    return Parameter(meaning, f"a whole number, {bounds}", read)


def choice(meaning: str, choices: Collection[str], *, several: bool = False) -> Parameter:
    """One of ``choices``; an unknown value is refused, and the error names the nearest one."""

    def read(given: object) -> str:
        if given not in choices:
            raise ValueError(unknown("value", str(given)[:_SHOWN], choices))
        return str(given)

    accepts = ", ".join(choices)
    return Parameter(meaning, f"any of {accepts}" if several else accepts, read, several)


def text(meaning: str) -> Parameter:
    """A text, or None."""

    def read(given: object) -> str | None:
        if given is not None and not isinstance(given, str):
            raise ValueError(f"a text, not {_short(given)}")
        return given

    return Parameter(meaning, "a text", read)


def switch(meaning: str) -> Parameter:
    """Yes or no."""

    def read(given: object) -> bool:
        if given in ("yes", "no"):
            return given == "yes"
        if not isinstance(given, bool):
            raise ValueError(f"yes or no, not {_short(given)}")
        return given

    return Parameter(meaning, "yes or no", read, written=lambda value: "yes" if value else "no")


def words(meaning: str) -> Parameter:
    """Several texts, or None; as text they are joined by ``+``."""

    def read(given: object) -> tuple[str, ...] | None:
        if given is None:
            return None
        texts = given.split("+") if isinstance(given, str) else given
        if not isinstance(texts, Iterable) or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"texts, not {_short(given)}")
        return tuple(texts)

    return Parameter(meaning, "texts", read, written=lambda texts: "+".join(texts or ()))


def value(meaning: str) -> Parameter:
    """A Python value that only the answer function can check; it cannot be given as text."""

    def read(given: object) -> object:
        if isinstance(given, str):
            raise ValueError("can be given in Python only")
        return given

    return Parameter(meaning, "a Python value", read, textual=False)


def _short(given: object) -> str:
    return repr(given)[:_SHOWN]


def _time(ns: int) -> str:
    """Return ``10 µs`` for 10,000 ns."""
    unit, scale = next(
        (unit, scale) for unit, scale in reversed(_UNITS) if ns >= scale or scale == 1
    )
    return f"{ns / scale:g} {unit}"
