"""Numbers as text for people: three digits and a unit; an unknown value is a dash, never 0."""

from __future__ import annotations

import math
from typing import Final

#: The text for an unknown value.
UNKNOWN: Final = "–"

_DECIMAL: Final = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def _known(value: object) -> float | None:
    if isinstance(value, (int, float)) and math.isfinite(value):
        return float(value)
    return None


def _digits(value: float) -> str:
    """Return three significant digits, without an exponent."""
    size = abs(value)
    return f"{value:.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def time(ns: object) -> str:
    """Return nanoseconds as ``812 ns``, ``12.3 µs``, ``4.56 ms``, ``78.9 s``."""
    value = _known(ns)
    if value is None:
        return UNKNOWN
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(value) >= scale * 0.9995:
            return f"{_digits(value / scale)} {unit}"
    return f"{value:.0f} ns"


def _decimal(value: object, unit: str) -> str:
    number = _known(value)
    if number is None:
        return UNKNOWN
    for scale, prefix in _DECIMAL:
        if abs(number) >= scale * 0.9995:
            return f"{_digits(number / scale)} {prefix}{unit}"
    return f"{number:.0f} {unit}"


def flop(count: object) -> str:
    """Return floating-point operations as ``1.23 GFLOP``."""
    return _decimal(count, "FLOP")


def size(count: object) -> str:
    """Return bytes as ``1.23 MB`` (decimal)."""
    return _decimal(count, "B")


def flop_rate(rate: object) -> str:
    """Return floating-point operations per second as ``1.23 TFLOP/s``."""
    return _decimal(rate, "FLOP/s")


def bandwidth(rate: object) -> str:
    """Return bytes per second as ``1.23 TB/s`` (decimal)."""
    return _decimal(rate, "B/s")


def ratio(value: object) -> str:
    """Return a number without a unit, to three digits: ``0.083``, ``12.3``, ``4,560``."""
    number = _known(value)
    if number is None:
        return UNKNOWN
    return f"{number:,.0f}" if abs(number) >= 99.95 else f"{number:.3g}"


def count(number: object) -> str:
    """Return a whole number with all digits and a comma after the thousands: ``12,345``."""
    if isinstance(number, int):
        return f"{number:,}"
    value = _known(number)
    return UNKNOWN if value is None else f"{value:,.0f}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number of things: ``1 step``, ``1,234 steps``; ``plural``: if it takes no s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def with_article(noun: str) -> str:
    """Return a noun with its article: ``a step``, ``an iteration``."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def share(part: object) -> str:
    """Return a fraction of 1 as ``12.3 %``; never rounded to 100 % or 0 %, on either side of it."""
    value = _known(part)
    if value is None:
        return UNKNOWN
    if 0 < abs(value) < 0.0005:
        return "<0.1 %" if value > 0 else ">-0.1 %"
    if 0.9995 <= abs(value) < 1:
        return ">99.9 %" if value > 0 else "<-99.9 %"
    return f"{value * 100 + 0.0:.1f} %"


def text(value: object) -> str:
    """Return any other value as text, with control characters escaped so that no name controls a terminal."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and not math.isfinite(value):
        return UNKNOWN
    return visible(str(value))


def visible(line: str, allowed: str = "") -> str:
    """Return ``line`` with every control character, except those in ``allowed``, written as its escape."""
    if line.isprintable():
        return line
    return "".join(
        c if c.isprintable() or c in allowed else c.encode("unicode_escape").decode() for c in line
    )
