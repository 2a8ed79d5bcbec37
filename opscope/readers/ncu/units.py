"""Read the numbers that ncu prints, with separators of any locale, and bring them to base units."""

from __future__ import annotations

import re
from typing import Final

import polars as pl

#: Prefixes are decimal: 1,024 bytes print as 1.02 Kbyte.
_PREFIX: Final = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_WORDS: Final = "bytes?|B|insts?|sectors?|cycles?|requests?|warps?|threads?|blocks?|hz|Hz|FLOPs?|op"
_PREFIXED: Final = re.compile(rf"([KMGTP])({_WORDS})\Z")
#: Times as ns.
_NS: Final = {
    "ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9,
}  # fmt: skip
#: What separates groups of three digits besides commas and points.
_SPACES: Final = r"[\u0020\u00a0\u2009\u202f'’]"
#: A number whose comma can only be a decimal sign.
_DECIMAL_COMMA: Final = (
    r"^[+-]?(?:\d+|\d{1,3}(?:\.\d{3})+),(?:\d{1,2}|\d{4,})$|^[+-]?\d{1,3}(?:\.\d{3})+,\d+$"
)
_DECIMAL_POINT: Final = r"^[+-]?\d{1,3}(?:,\d{3})+\.\d+$|^[+-]?\d+\.(?:\d{1,2}|\d{4,})$"


def factor(unit: str) -> float:
    """Return by what a value in ``unit`` is multiplied to be in base units: bytes, ns, per second."""
    above, slash, below = unit.strip().partition("/")
    return _factor(above, per=False) / (_factor(below, per=True) if slash else 1.0)


def _factor(word: str, per: bool) -> float:
    word = word.strip()
    if word in _NS:
        return _NS[word] * (1e-9 if per else 1.0)
    match = _PREFIXED.match(word)
    return _PREFIX[match.group(1)] if match else 1.0


def decimal_comma(texts: pl.Series) -> bool:
    """Return whether the numbers have a comma before their fraction, as a locale may write them.

    ``1,234`` alone is a thousand; a comma is decimal if a number shows it and none shows the contrary.
    """
    bare = texts.drop_nulls().str.strip_chars()
    return bool(bare.str.contains(_DECIMAL_COMMA).any()) and not bool(
        bare.str.contains(_DECIMAL_POINT).any()
    )


def numbers(texts: pl.Series, comma: bool) -> pl.Series:
    """Return the numbers in ``texts``; null where a text is none (``n/a``, a word).

    What follows a number in parentheses, as the values of its instances, is left out.
    """
    bare = texts.str.strip_chars().str.replace(r"\s*[({].*$", "").str.strip_chars(" %")
    bare = bare.str.replace_all(_SPACES, "")
    if comma:
        bare = bare.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
    else:
        bare = bare.str.replace_all(",", "", literal=True)
    floats = bare.cast(pl.Float64, strict=False)
    numbers_read: pl.Series = floats.set(~floats.is_finite().fill_null(True), None)
    return numbers_read
